"""Names, colours, layout and phrases that all reports share. It may import no other folder of ``report``."""
