"""Two runs side by side: what differs between them, and the parts that their steps' difference is made of.

All functions are pure functions of records. Of ``analysis`` it may import no other room, except ``costs`` and
``findings``.
"""
