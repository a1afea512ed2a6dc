"""What a record says in words. ``table`` lists the rules; ``headline`` chooses the first line of a summary.

Pure: a rule reads the record and nothing else. Of ``analysis`` it may import ``times``.
"""
