"""How a Python interpreter is started for a module of this package."""

from __future__ import annotations

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""For processes that run nothing of the user's: Python imports nothing from the current folder."""


def module_words(name: str) -> tuple[str, ...]:
    """What an interpreter is given to run a module of this package: ``-m``, without the current folder on its path.

    That may hold a torch of its own (a source tree) or anything else that hides a module. Unlike with
    ``PYTHONSAFEPATH``, which Python 3.10 does not know, what it starts in turn looks where it ever did.
    """
    return ("-c", _RUN_MODULE, name)


_RUN_MODULE = """\
import sys
if sys.path[0] == "":
    del sys.path[0]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""
