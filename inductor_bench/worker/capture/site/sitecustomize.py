"""Starts the observation of compiled modules, and then runs the user's own ``sitecustomize``.

Python imports this file at start-up, because a capture puts its folder first on ``PYTHONPATH``.
"""

import importlib.machinery
import importlib.util
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
_others = [path for path in sys.path if os.path.abspath(path or ".") != _here]

try:
    import inductor_bench.worker.capture.startup as _startup
except ImportError:
    # A child process in another environment may lack the package; it runs unobserved.
    pass
else:
    _startup.install()

_spec = importlib.machinery.PathFinder.find_spec("sitecustomize", _others)
if _spec is not None and _spec.loader is not None:
    _module = importlib.util.module_from_spec(_spec)
    sys.modules["sitecustomize"] = _module
    _spec.loader.exec_module(_module)
