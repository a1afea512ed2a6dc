"""What a trace holds: events, activities, operators. It may import records only."""
