"""Renders the results of the verb ``kernel``. It may import only ``text`` from the rest of ``report``."""
