"""Recorded histories: as request traces to run again, and held against the simulator."""
