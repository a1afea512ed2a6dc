"""The report of a comparison of two runs or two batches. Of ``report`` it may import ``text``, ``page`` and ``run``."""
