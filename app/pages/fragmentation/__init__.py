"""The page Fragmentation."""
