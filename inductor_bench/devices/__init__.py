"""Describes the kinds of devices for the rest of the package: facts and names. No torch, no measurement."""
