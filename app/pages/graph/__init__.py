"""The page Graph."""
