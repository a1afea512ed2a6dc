"""The step as a queue: what the host does in order, what it launches, and what a change would save.

It may import what ``analysis`` may. ``queue`` and ``fitting`` are pure and know nothing of traces and records.
"""
