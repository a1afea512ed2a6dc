"""Requests, observations and measurements as frozen dataclasses. It may import no other room.

This room holds data only: no I/O, no statistics, no torch. Times are seconds, sizes are bytes, rates are per second.
A field that could not be measured is ``None``; the record's failures or notes give the reason.
"""
