"""What the retunes of a run save in its program."""
