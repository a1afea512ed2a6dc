"""The answer to a query. Of ``report`` it may import ``text`` and ``run``."""
