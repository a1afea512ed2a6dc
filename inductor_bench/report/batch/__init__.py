"""Renders the report of a batch. It may import only ``text`` and ``run`` from the rest of ``report``."""
