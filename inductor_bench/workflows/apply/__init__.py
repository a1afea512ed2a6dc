"""The verb ``apply``: puts the configurations that a RUN's retunes found into a program, and proves what they save.

Of ``workflows`` it may import ``modules`` and ``ledger``.
"""
