"""Proves in the program what the pins save: its steps with them and without, in turn, or whole processes in turn."""
