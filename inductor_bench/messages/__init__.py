"""The messages between a parent process and its workers: one dataclass per request, and one per answer.

Both sides import this folder, so it needs no torch. It imports records, and the codec of ``store``.
"""
