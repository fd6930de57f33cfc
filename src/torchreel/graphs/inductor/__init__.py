"""Runs of ops that Inductor compiles to one kernel, in a process of its own."""
