"""Records as console text, HTML, Markdown, CSV and plots. It measures nothing.

It may import records, devices, analysis and store.
"""
