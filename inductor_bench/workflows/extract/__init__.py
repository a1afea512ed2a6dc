"""The verb ``extract``; ``run`` is its entry. Of the workflows' rooms it may import ``modules`` only."""
