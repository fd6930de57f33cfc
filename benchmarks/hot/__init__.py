"""Which ops do real models use? `python -m benchmarks.hot [--write]` counts them."""
