"""The page Peak."""
