"""The harness of standalone kernel files: pasted into them as text, and importable so that it can be tested."""
