"""FLOPs and bytes of library operators."""
