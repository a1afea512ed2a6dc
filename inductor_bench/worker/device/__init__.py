"""The device that this process measures on: its driver, its other users, its turn, its peaks, the environment.

Of ``worker`` it may import ``upstream``.
"""
