"""The generator of the tape's wrappers in C++."""
