"""Records of traces: events, activities and operators. Of ``records`` it may import ``code``."""
