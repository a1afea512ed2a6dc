"""One file per verb: a request in, a record out. No click, no printing; progress goes through ``progress.Progress``."""
