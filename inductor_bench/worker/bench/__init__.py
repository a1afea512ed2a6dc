"""Loads standalone kernel files into this process, checks and times them, and builds their variants."""
