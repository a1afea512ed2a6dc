"""What a compiled module launches, with exact arguments and values. It may not import ``profile`` or ``capture``."""
