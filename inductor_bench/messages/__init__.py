"""What a parent and its workers say to each other: one dataclass for each request, and one for each answer.

Both sides import this room, so nothing here needs torch. It may import records, devices and store (for the codec).
"""
