"""The verb ``extract``; ``run`` is its entry. Of ``workflows`` it may import ``modules``."""
