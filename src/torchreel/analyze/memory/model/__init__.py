"""What the questions about memory are answered from: one device's history, with what is known of each block."""
