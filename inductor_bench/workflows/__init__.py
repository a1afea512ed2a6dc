"""What each verb does, in order: a request in, a record out. A verb's entry is in the file of its name.

No click, no printing, no torch; progress goes through ``progress.Progress``. It may import records, devices, messages,
store, source, trace, analysis, autotune and launch. Four files of ``report``, which write into the folders of results
and show an observed block, are open to it too.
"""
