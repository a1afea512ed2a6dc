"""Reading what Inductor wrote, and writing standalone kernel files, as text.

It may import records and devices. Torch is imported by ``harness`` alone, whose files only workers import.
"""
