"""The command line ``tmmu``: the commands, their options, and their output as text or JSON."""
