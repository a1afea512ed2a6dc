"""How records become bytes and back: JSON, tables, tensors, schema numbers. Nothing here knows which file is which;
the store's other files do.
"""
