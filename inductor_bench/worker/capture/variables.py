"""The environment variables that tell the processes of a captured program what to observe. Imports nothing."""

CAPTURE_FOLDER = "INDUCTOR_BENCH_CAPTURE"
LIVE = "INDUCTOR_BENCH_LIVE"
REPEAT = "INDUCTOR_BENCH_REPEAT"
VALUES_LIMIT = "INDUCTOR_BENCH_VALUES_LIMIT"
