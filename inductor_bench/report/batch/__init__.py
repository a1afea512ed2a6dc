"""The report of a batch: document, settings, tables. Of ``report`` it may import ``run``."""
