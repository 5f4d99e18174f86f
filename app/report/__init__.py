"""Reports of a plan as HTML, PDF and Markdown, and SVG pictures of a plan."""
