"""What a tape takes for granted of Python, and what to say when it is no longer so."""
