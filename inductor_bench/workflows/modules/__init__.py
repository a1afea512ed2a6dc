"""From a target to analysed modules: runs programs, profiles modules, and attributes their traces.

The verbs share this room; it may import none of them.
"""
