"""The commands, one module each or one for a group of small ones."""
