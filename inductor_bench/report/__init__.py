"""Renders records as console text, HTML, Markdown, CSV and plots. It imports records, analysis, store and devices."""
