"""Memory snapshots in PyTorch's schema."""
