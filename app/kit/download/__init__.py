"""Pictures and files to download."""
