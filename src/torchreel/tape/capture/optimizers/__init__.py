"""Optimizers on a tape: their numbers go on from step to step."""
