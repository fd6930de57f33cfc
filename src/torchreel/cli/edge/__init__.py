"""The command `torchreel edge`."""
