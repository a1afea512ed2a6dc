"""Records as console text, HTML, Markdown, CSV and plots. It imports records, analysis, store; it measures nothing."""
