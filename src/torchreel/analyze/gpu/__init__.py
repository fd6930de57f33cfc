"""What devices did, and why they waited: questions about the kernels of a reel, one per file."""
