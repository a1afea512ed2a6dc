"""The report of a batch. Of ``report`` it may import ``text``, ``page`` and ``run``."""
