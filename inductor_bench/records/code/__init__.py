"""Records of compiled code: modules, kernels, launches and extracted files.

Of ``records`` it may import no other room.
"""
