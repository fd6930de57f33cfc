"""Recorded histories: as programs to run again, and held against the simulator."""
