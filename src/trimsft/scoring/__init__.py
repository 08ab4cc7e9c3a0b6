"""From graded samples to figures: counts of a problem, votes, intervals, paired comparison."""

MOST_SAMPLES = 1000
"""Samples of a problem: the number of ways to choose among more does not fit a float64, so votes cannot be counted."""
