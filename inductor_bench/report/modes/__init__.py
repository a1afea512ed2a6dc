"""The report of a comparison of modes. Of ``report`` it may import ``text``, ``page`` and ``run``."""
