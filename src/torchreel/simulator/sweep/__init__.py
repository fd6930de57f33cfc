"""Settings that are worth trying, tried, and what follows from that."""
