"""From a target to analysed modules: programs run, modules profiled, traces attributed.

Shared by the verbs; it may import none of them.
"""
