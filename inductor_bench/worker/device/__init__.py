"""The device that a worker measures on: its runtime, its driver, its other users, its turns, and the environment."""
