"""What puts the winners of retunes into a program, and what they save there."""
