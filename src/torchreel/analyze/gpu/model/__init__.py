"""What questions about devices compute with: the calls and kernels of one process as arrays, and their graph."""
