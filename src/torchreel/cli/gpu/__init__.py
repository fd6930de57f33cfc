"""The command `torchreel gpu`."""
