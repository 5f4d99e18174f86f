"""peak."""
