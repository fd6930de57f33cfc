"""A recording on the CPU as the program that a GPU would have run."""
