"""File formats: JSON of records, tables, tensors and schema numbers. The store's other files know the paths."""
