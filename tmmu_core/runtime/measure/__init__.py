"""Memory that real runtimes use for a model."""
