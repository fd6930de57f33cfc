"""Questions about a program."""
