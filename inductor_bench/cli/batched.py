"""One model of a batch: ``python -m inductor_bench.cli.batched LIFELINE WORDS...`` is ``inductor-bench WORDS...``, and
ends with all that it started when the batch does.

``LIFELINE`` is the reading end of a pipe whose other end only the batch holds: it breaks however the batch ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

from .main import main

GRACE_S = 10.0


def end_with(lifeline: int) -> None:
    """Waits for the lifeline to break, then has this process clean up and end; without its consent if need be."""
    os.read(lifeline, 1)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE_S)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    lifeline, *words = sys.argv[1:]
    sys.argv = ["inductor-bench", *words]
    threading.Thread(target=end_with, args=(int(lifeline),), daemon=True).start()
    sys.exit(main())
