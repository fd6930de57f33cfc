"""What a function returns, and what it leaves behind."""
