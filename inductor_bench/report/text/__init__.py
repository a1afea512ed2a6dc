"""Names, colours, layout and wording that all reports share. Of ``report`` it may import no other room."""
