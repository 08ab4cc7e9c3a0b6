"""The fault campaign of `make soak`: what it promises and what it tries is in docs/reliability.md."""
