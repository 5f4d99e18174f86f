"""The frame around every page: toolbar, file list, settings, error cards."""
