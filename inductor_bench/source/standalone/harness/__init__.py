"""The harness of standalone kernel files: pasted into them as text, and importable for tests."""
