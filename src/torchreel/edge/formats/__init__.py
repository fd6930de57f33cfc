"""The formats of deployed models: an adapter for each."""
