"""What ``kernel`` shows of measured, compared and tuned files. Of ``report`` it may import ``text``."""
