"""FLOPs and bytes of library operators. Of ``worker`` it may import no other room."""
