"""The report of one RUN. Of ``report`` it may import ``text`` and ``page``."""
