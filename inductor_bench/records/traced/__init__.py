"""Records of traces: events, activities and operators. It imports records only."""
