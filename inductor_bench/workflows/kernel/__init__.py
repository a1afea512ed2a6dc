"""The verb ``kernel``; ``run`` is its entry. Of the workflows' rooms it may import ``modules`` only; the engine is
``autotune``.
"""
