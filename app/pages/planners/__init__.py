"""The page Planners."""
