"""The edge profiler: one deployed model, in the format in which it is shipped, its backends and its cost."""
