"""The run folder and its one source of truth, ``record.json``: schema number, codec, atomic writes. No torch here."""
