"""The command-line arguments and variables with which a Python interpreter runs a module of this package."""

from __future__ import annotations

SAFE_PATH = {"PYTHONSAFEPATH": "1"}
"""Variables of processes that run no code of the user: Python imports nothing from the current folder."""

ANOTHER_PYTHON = "name an interpreter that has torch with --python"
"""The hint where an interpreter does not do."""

NOT_PYTHON = "{python} is no Python interpreter"


def module_words(name: str) -> tuple[str, ...]:
    """The arguments that run a module of this package like ``-m``, but without the current folder on the import path.

    The current folder may hold modules that hide others, for example a source tree of torch. ``PYTHONSAFEPATH`` would
    also affect the processes that the module starts, and Python 3.10 does not support it.
    """
    return ("-c", _RUN_MODULE, name)


_RUN_MODULE = """\
import sys
if sys.path[0] == "":
    del sys.path[0]
import runpy
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""
