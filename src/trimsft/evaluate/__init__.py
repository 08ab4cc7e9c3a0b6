"""Evaluation: repeated sampling, grading, scores and their comparison."""
