"""The commands of ``tmmu``. A module has one command or a group of small commands."""
