"""The page Scale."""
