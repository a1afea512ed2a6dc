"""The device that this process measures on: its driver, its other users, its turn, the environment."""
