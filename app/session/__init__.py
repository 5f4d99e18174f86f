"""State of a session: open files, choices and running jobs."""
