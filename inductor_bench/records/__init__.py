"""What was asked, seen and measured, as frozen dataclasses.

This room holds data and nothing else: no I/O, no statistics, no torch. Times are seconds, sizes bytes, rates per
second. A field that could not be measured is ``None`` and its reason stands in the record's failures or notes.
"""
