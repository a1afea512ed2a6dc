"""The verb ``kernel``, which times and autotunes standalone files; ``run`` is its entry.

Of the workflows it may import ``modules`` only. The tuning itself is in ``autotune``.
"""
