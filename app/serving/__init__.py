"""From where the explorer can be reached, and by whom."""
