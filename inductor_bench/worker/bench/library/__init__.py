"""Library calls: the call of a file, and the choices that Inductor has for it."""
