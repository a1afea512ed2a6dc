"""Facts about the kinds of devices, and words for them. This room does not use torch and measures nothing.

It may import records.
"""
