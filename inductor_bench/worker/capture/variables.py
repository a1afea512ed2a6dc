"""The environment variables that configure the observation in the processes of a captured program."""

CAPTURE_FOLDER = "INDUCTOR_BENCH_CAPTURE"
LIVE = "INDUCTOR_BENCH_LIVE"
REPEAT = "INDUCTOR_BENCH_REPEAT"
VALUES_LIMIT = "INDUCTOR_BENCH_VALUES_LIMIT"
