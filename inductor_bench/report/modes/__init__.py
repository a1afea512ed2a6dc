"""The report of a comparison of modes. Of ``report`` it may import ``text`` and ``run``."""
