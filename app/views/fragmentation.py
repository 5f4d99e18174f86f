"""fragmentation."""
