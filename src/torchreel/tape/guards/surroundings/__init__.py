"""What a function can reach in Python: where it lies, and the values that were found there."""
