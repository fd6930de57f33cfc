"""A tape as another program: without mutation, or as a graph of torch.fx."""
