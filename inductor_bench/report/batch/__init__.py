"""What a batch says: document, settings, tables. Of ``report`` it may import ``run``."""
