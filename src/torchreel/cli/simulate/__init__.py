"""The command `torchreel simulate`."""
