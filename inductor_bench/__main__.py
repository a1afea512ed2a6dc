"""``python -m inductor_bench``: the same as the ``inductor-bench`` command."""

from __future__ import annotations

import sys

from .cli.main import main

if __name__ == "__main__":
    sys.exit(main())
