"""Server process of the explorer and its access control."""
