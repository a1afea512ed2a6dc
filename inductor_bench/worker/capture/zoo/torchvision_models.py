"""Models of torchvision."""

from __future__ import annotations

import re

from ....errors import InductorBenchError
from .example import Example, cross_entropy, library, unknown


def build(name: str, batch_size: int, training: bool) -> Example:
    """A classifier or a segmentation model of torchvision and a batch of images or videos."""
    import torch

    models = library("torchvision", "torchvision.models")
    if name not in models.list_models():
        raise unknown("torchvision", name, models.list_models())
    package = models.get_model_builder(name).__module__
    if re.search(r"\.(detection|optical_flow|quantization)\b", package):
        raise InductorBenchError(
            f"{name} takes other inputs than a batch of images", "write a factory that makes them: FILE.py:FACTORY"
        )
    options = {"weights_backbone": None} if ".segmentation" in package else {}
    model = models.get_model(name, weights=None, **options)
    transforms = models.get_model_weights(name).DEFAULT.transforms  # only the settings: this fetches nothing
    crop = getattr(transforms, "keywords", {}).get("crop_size", 224)
    size = tuple(crop) if isinstance(crop, tuple | list) else (crop, crop)
    shape = (3, 16, *size) if ".video" in package else (3, *size)
    loss = None if ".segmentation" in package else cross_entropy(torch.randint(0, 10, (batch_size,)))
    return Example(model, (torch.randn(batch_size, *shape),), loss=loss)
