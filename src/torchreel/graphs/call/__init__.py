"""A call of a graphed function: recorded, replayed, verified, or left to eager."""
