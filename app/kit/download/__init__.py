"""Pictures and files for download."""
