"""The modules of the model and the lines of the program that device time belongs to."""

from __future__ import annotations

from dataclasses import dataclass

from .base import Inline
from .code import SourceLine


@dataclass(frozen=True)
class LayerWork:
    """What is known of the work of a layer's or a line's kernels in a step, beside its FLOPs."""

    product_time_s: float = 0.0  # the part of ``time_s`` in matrix products, convolutions and attention
    uncounted_s: float = 0.0  # the part of that whose FLOPs are unknown
    # seconds that the FLOPs would take at the device's measured peaks for their types; ``None`` if a peak is unknown
    peak_time_s: float | None = None
    moved_bytes: float | None = None  # the least that its kernels read and write; ``None`` if it is known of none
    unmeasured_s: float = 0.0  # the part of ``time_s`` in kernels whose bytes are unknown


@dataclass(frozen=True)
class LayerTime:
    """The device time of one module in one direction in a step, without that of the modules in it.

    All rows of a step add up to its device time: rows without a layer are what no module did.
    """

    # the object at the root and the names from there on, such as ``Llama.layers.3.mlp.up_proj``; of an eager operator
    # the class of its module; empty outside of modules
    layer: str
    direction: str  # ``forward``, ``backward`` or ``recomputed``; empty if it is unknown
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective`` or ``copy``
    time_s: float  # seconds per step
    launches: float  # the number of kernels in a step; of one that is divided the layer's part
    shared_s: float = 0.0  # the part of ``time_s`` that comes from kernels that several layers share
    flops: float = 0.0  # of matrix products, convolutions and attention in a step
    work: Inline[LayerWork] = LayerWork()  # the rest of its work


@dataclass(frozen=True)
class LineTime:
    """The device time of one line of the user's program in one direction in a step. All rows add up as the layers."""

    source: SourceLine | None  # ``None`` if the line is unknown
    direction: str  # ``forward``, ``backward`` or ``recomputed``; empty if it is unknown
    kind: str  # ``graph``, ``eager``, ``optimizer``, ``collective`` or ``copy``
    time_s: float  # seconds per step
    launches: float  # the number of kernels in a step; of one that is divided the line's part
    shared_s: float = 0.0  # the part of ``time_s`` that comes from kernels that several layers share
    flops: float = 0.0  # of matrix products, convolutions and attention in a step
    work: Inline[LayerWork] = LayerWork()  # the rest of its work
