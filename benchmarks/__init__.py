"""What torchreel costs, side by side with torch.profiler in one run: `make bench`, or `python -m benchmarks`."""
