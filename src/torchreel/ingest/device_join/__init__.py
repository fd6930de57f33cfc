"""Two halves of one run -> one: what our recorder saw of the host, and what a trace says of the devices."""
