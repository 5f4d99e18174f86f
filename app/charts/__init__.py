"""Core values → Plotly figures. Pure: nothing is computed that the core knows, nothing is drawn on a page."""
