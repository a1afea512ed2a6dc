"""Prints the results of verbs: console, presentation options, and formats. It may import no verb."""
