"""Records as screen, HTML, Markdown, CSV and plots. It imports records, analysis and store; it measures nothing."""
