"""A call becomes a recording: its ops, its outputs, its backward."""
