"""Models of timm."""

from __future__ import annotations

from typing import Any

from .example import Example, cross_entropy, library, unknown


def build(name: str, batch_size: int, training: bool) -> Example:
    """A classifier of timm and a batch of images."""
    import torch

    timm = library("timm")
    if not timm.is_model(name):
        raise unknown("timm", name, timm.list_models())
    model = timm.create_model(name, pretrained=False)
    settings: dict[str, Any] = dict(model.pretrained_cfg)
    size = tuple(settings.get("input_size") or (3, 224, 224))
    classes = getattr(model, "num_classes", 0) or 1000
    labels = torch.randint(0, classes, (batch_size,))
    return Example(model, (torch.randn(batch_size, *size),), loss=cross_entropy(labels))
