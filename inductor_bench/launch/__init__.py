"""The parent's side of a measurement: start a process, bound it, kill all of it, read its result. No torch here."""
