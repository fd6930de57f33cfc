"""What lines of the source cost."""
