"""Decoding of many texts at once, each at a position of its own, by one CUDA graph a step."""
