"""A program as Python text."""
