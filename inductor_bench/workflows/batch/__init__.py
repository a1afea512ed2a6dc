"""The verb ``batch``; ``run`` is its entry. No other verb may import it."""
