"""From a target to analysed modules: programs run, modules profiled, traces attributed.

The verbs share it. Of ``workflows`` it may import no other room.
"""
