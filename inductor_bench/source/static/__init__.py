"""The launches of a module that nobody ran: shapes and arguments from the text alone.

Of ``source`` it may import ``module`` only.
"""
