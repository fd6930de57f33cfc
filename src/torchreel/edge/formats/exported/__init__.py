"""Programs of torch.export, and the files that hold them."""
