"""Memory snapshots, as PyTorch and torchreel write them."""
