"""The only room that imports torch or triton. It runs in disposable processes, started by module name, never imported
by another room. ``upstream`` is the one file that touches torch's private names."""
