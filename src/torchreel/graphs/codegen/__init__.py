"""The generator of the kernels of structured ops in C++."""
