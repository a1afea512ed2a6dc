"""Reading what Inductor wrote, and writing standalone kernel files, as text.

It imports records alone: no store, no trace, no torch (the harness of standalone files is run by workers only).
"""
