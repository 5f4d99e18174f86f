"""The page Fix."""
