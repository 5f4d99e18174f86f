"""The graph: its values, sizes, validation and native file format; ``formats/`` reads all other files."""
