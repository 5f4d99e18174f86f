"""The page Shapes."""
