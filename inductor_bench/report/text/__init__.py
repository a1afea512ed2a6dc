"""Names, colours, layout and wording that all reports share. It may import no other room of ``report``."""
