"""Execution traces."""
