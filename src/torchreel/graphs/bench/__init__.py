"""What graphs would do for a function of the user's, measured."""
