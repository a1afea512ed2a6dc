"""The code of worker processes: the only room that imports torch or triton.

The parent starts it by its module name in disposable processes; no other room imports it. ``upstream`` holds most uses
of torch's private names.
"""
