"""What a record says in words: one file of rules per subject, put together by ``rules``.

Pure: a rule reads the record and nothing else. Of ``analysis`` it may import ``times``.
"""
