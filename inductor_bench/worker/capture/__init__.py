"""Code inside the user's program: start-up, the observation of compiled modules, and named models.

A capture puts the folder ``site`` on the program's ``PYTHONPATH``. Of ``worker`` it may import ``upstream``,
``device`` and ``profile``.
"""
