"""Programs of ExecuTorch."""
