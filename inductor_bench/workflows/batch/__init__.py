"""The verb ``batch``, which measures all models of a list; ``run`` is its entry. No other verb may import it."""
