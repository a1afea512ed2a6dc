"""What a GPU's facts mean: occupancy, counters, who else uses it. Pure: no I/O, no torch."""
