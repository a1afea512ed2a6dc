"""One folder per verb, whose entry is ``run``: a request in, a record out. Short verbs are single files.

No click, no printing, no torch; progress goes through ``progress.Progress``. It may import records, devices, messages,
store, source, trace, analysis, autotune and launch. Three files of ``report``, which write into the folders of results,
are open to it too.
"""
