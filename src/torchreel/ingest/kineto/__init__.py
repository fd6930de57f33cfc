"""Traces that torch.profiler (Kineto) wrote, and others in Chrome's format."""
