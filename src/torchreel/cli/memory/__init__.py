"""The command `torchreel memory`."""
