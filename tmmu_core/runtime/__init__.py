"""Apply a plan to real memory: zero fill, debug fill, commit, measuring runtimes."""
