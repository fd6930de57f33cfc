"""A tape runs again: its arguments, its outputs, its file."""
