"""The report as HTML, PDF and Markdown, and its still pictures."""
