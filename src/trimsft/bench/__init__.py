"""Benchmarks of the fused language-model head against its peers."""
