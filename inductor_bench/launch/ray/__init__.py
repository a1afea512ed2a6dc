"""Runs jobs on a Ray cluster. Only these files use Ray; ``launch.jobs`` defines the executor's interface."""
