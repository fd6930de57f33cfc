"""Execution traces (ExecutionTraceObserver): the arguments of each op, without times."""
