"""The verb ``extract``; ``run`` is its entry. Of the workflows' rooms it imports ``modules`` only."""
