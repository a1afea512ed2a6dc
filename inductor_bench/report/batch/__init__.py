"""The report of a batch. Of ``report`` it may import ``text`` and ``run``."""
