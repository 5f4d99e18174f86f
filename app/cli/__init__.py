"""The command line: a file per command, options shared in one place, the core's values in words or as JSON."""
