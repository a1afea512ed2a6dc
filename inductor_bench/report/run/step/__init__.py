"""The report of a program's step: its ledger, ranks, graphs and timeline."""
