"""The device time of a step by the model's own modules and by the program's lines."""
