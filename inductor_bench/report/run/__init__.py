"""Renders the report of one RUN. It may import only ``text`` from the rest of ``report``."""
