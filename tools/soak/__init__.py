"""The fault campaign: `python -m tools.soak`, see docs/reliability.md."""
