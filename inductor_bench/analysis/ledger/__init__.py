"""The ledger of a program's step: every moment of its wall time in one part.

Of ``analysis`` it may import no other room.
"""
