"""Findings about a program's step. They speak where the step was profiled, and rest on its ledger alone."""
