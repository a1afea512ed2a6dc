"""From a target to analysed modules: runs programs, profiles modules, and attributes their traces.

The verbs share it. Of ``workflows`` it may import no other room.
"""
