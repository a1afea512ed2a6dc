"""What retunes won, and what they save in the program."""
