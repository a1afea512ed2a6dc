"""The layouts of folders of results that are neither a RUN nor a batch."""
