"""The rules, one function for each kind of finding, in files by subject. Each has a row in ``table``, but for
``busy_machine``, whose finding is the first line of a summary (``headline``).
"""
