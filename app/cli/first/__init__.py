"""Commands that most users need."""
