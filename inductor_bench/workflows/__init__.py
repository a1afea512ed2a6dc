"""One folder per verb, whose entry is ``run``: a request in, a record out. Short verbs are single files.

No click, no printing, no torch; progress goes through ``progress.Progress``. It may not import ``cli`` or ``worker``.
"""
