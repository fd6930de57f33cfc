"""Chrome trace JSON."""
