"""The page Ranks."""
