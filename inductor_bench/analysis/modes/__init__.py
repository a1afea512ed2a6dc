"""What a comparison of modes says: figures of each row, verdicts between rows, when compilation pays, the winner.

Of ``analysis`` it may import no other room.
"""
