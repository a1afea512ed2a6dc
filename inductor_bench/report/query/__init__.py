"""Renders the answer to a query. It may import only ``text`` and ``run`` from the rest of ``report``."""
