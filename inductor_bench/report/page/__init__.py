"""HTML pages: their parts, of which reports build them, and their rendering. Of ``report`` it may import ``text``."""
