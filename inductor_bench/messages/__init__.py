"""The messages between a parent process and its workers: one dataclass per request, and one per answer.

Both sides import this room, so nothing here needs torch. It may import records, devices and store (for the codec).
"""
