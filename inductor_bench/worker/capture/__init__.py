"""Inside the user's program: start-up, the observation of compiled modules, the model sources.

``site`` is put on the program's ``PYTHONPATH``.
"""
