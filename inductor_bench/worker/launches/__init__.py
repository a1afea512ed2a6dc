"""Records the launches of a compiled module with exact arguments and values. It imports ``upstream`` only."""
