"""Widgets shared by pages: page frame, tensor details, tables, charts and downloads."""
