"""Reports from analysis results: HTML, Markdown and JSON of the same findings."""
