"""The report: one HTML file that works without a network, drawn by the same script as the explorer."""
