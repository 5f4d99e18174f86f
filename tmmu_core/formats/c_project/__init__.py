"""Plans as C sources."""
