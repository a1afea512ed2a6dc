"""Reading what Inductor wrote, and writing standalone kernel files, as text.

It may import records and devices. Only ``harness`` imports torch, and only workers import its files.
"""
