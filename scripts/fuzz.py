"""Damaged and hostile inputs: the real command runs on each, and none may crash, hang, or touch what is not its own.

Every input is drawn from ``--seed`` and its own number, so that ``--seed S --only N --keep DIR`` makes one again. The
seed is printed first; each run without ``--seed`` draws a new one. Only what reads is run: no worker is started, and no
compiled module is executed.

A table comes last: each kind of input by how the command ended, then every distinct fault once. The exit code is 0 only
if there is none.
"""

from __future__ import annotations

import argparse
import secrets
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fuzzing.campaign import Campaign, prepare, run_campaign, run_one
from fuzzing.fuzz_table import show_one, table
from fuzzing.fuzz_trial import Limits
from fuzzing.inputs import KINDS


def main() -> int:
    options = _parse()
    print(f"the inputs are drawn from --seed {options.seed}", file=sys.stderr, flush=True)
    prepare()
    campaign = Campaign(options.seed, Limits(options.limit), options.keep)
    if options.only is not None:
        result, said = run_one(campaign, options.only)
        print(show_one(result, said, options.seed))
        return 1 if result.faults else 0
    results = run_campaign(campaign, options.count, tuple(options.kind), options.jobs, options.first, _tell)
    print(table(results, options.seed))
    return 1 if any(result.faults for result in results) else 0


def _tell(done: int, count: int, faulty: int) -> None:
    if done % 500 == 0 or done == count:
        print(f"{done} of {count} inputs, {faulty} with a fault", file=sys.stderr, flush=True)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=1_000, help="how many inputs (default 1000)")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32), help="what they are drawn from")
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first input (default 0)")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default 2)")
    parser.add_argument("--kind", action="append", choices=list(KINDS), default=[], help="only inputs of this kind")
    parser.add_argument("--only", type=int, metavar="N", help="only the input of this number, and show what it printed")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="keep the folders of inputs with a fault, or of --only"
    )
    parser.add_argument(
        "--limit", type=int, default=60, metavar="SECONDS", help="CPU seconds of each command (default 60)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
