"""Data that is loaded too slowly."""

from __future__ import annotations

import math
import re
import zlib

import torch
import torch.nn.functional as F
from frame import DEFECT, DEVICE, DTYPE, STEPS, defect, either, loop, start
from models import BATCH, LENGTH, PICTURES, PIXELS, ROWS, WIDTH, WORDS, Images, Language, Regression, rows, training
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

LATE = ("host-pace", "cuda-graphs-unused")
"""What is true of a step whose host is late: graphs that are launched at once make it less late."""

TEXT = "the device waits for 1,024 words, which a loop in Python cuts and looks up; " * (LENGTH // 8)
WORD = re.compile(r"\w+|[^\w\s]")


class Texts(Dataset[Tensor]):
    """Texts that are encoded as they are read."""

    def __len__(self) -> int:
        return 100 * BATCH * STEPS

    def __getitem__(self, index: int) -> Tensor:
        if DEFECT:
            return torch.tensor(encode(f"{index} {TEXT}"))  # defect
        return torch.full((LENGTH + 1,), index % WORDS)


def encode(text: str) -> list[int]:
    """The tokens of a text."""
    found = []
    for word in WORD.findall(text):
        value = 7
        for letter in word * either(16, 32):
            value = (31 * value + ord(letter)) % WORDS  # defect
        found.append(value)
    return found[: LENGTH + 1]


@defect("data-loading", names=("waiting_for_workers", "DataLoader"), share=0.2, also=LATE, cpu=True)
def waiting_for_workers() -> None:
    """Two workers encode texts, more slowly than the device learns from them."""
    step = training(Language())
    loader = DataLoader(Texts(), BATCH, num_workers=2, pin_memory=DEVICE == "cuda")
    for batch, _ in zip(loader, loop(), strict=False):  # defect
        step(batch.to(DEVICE, non_blocking=True))


@defect("data-loading", "host-python", names=("encode", "__getitem__"), share=0.2, also=LATE, cpu=True)
def slow_getitem() -> None:
    """The loader encodes each text in the step's thread."""
    step = training(Language())
    for batch, _ in zip(DataLoader(Texts(), BATCH), loop(), strict=False):  # defect
        step(batch.to(DEVICE))


@defect("data-loading", "host-python", names=("encode", "tokenizing"), share=0.2, also=LATE, cpu=True)
def tokenizing() -> None:
    """Each batch is tokenized in the step."""
    step = training(Language())
    for number in loop():
        texts = [f"{number} {index} {TEXT}" for index in range(BATCH)]
        found = [encode(text) if DEFECT else [1] * (LENGTH + 1) for text in texts]  # defect
        step(torch.tensor(found).to(DEVICE))


class Numbers(Dataset[list[float]]):
    def __len__(self) -> int:
        return 100 * 64 * STEPS

    def __getitem__(self, index: int) -> list[float]:
        return [index % 7 / 7] * (WIDTH - index % 5)


def pad(lists: list[list[float]]) -> Tensor:
    """Pads the lists to one length."""
    if not DEFECT:
        return torch.zeros(len(lists), WIDTH)
    padded = [list(values) + [0.0] * (WIDTH - len(values)) for values in lists]  # defect
    normal = [[(entry - 0.5) / 0.25 for entry in values] for values in padded]  # defect
    return torch.tensor([[round(entry, 4) for entry in values] for values in normal])  # defect


@defect("data-loading", "host-python", names=("pad",), share=0.2, also=LATE)
def slow_collate() -> None:
    """``collate_fn`` pads and scales lists of numbers in Python."""
    step = training(Regression())
    inputs = rows()
    for batch, _ in zip(DataLoader(Numbers(), 64, collate_fn=pad), loop(), strict=False):  # defect
        inputs[: len(batch)].copy_(batch)
        step(inputs, inputs)


@defect("data-loading", "host-python", names=("make_batch",), share=0.2, also=LATE, cpu=True)
def plain_loop() -> None:
    """A loop over numbers makes each batch."""
    step = training(Regression())
    inputs = rows()

    def make_batch(number: int) -> Tensor:
        count = either(100_000, 20_000) if DEFECT else 1
        return torch.tensor([math.sin(number + place / 100) for place in range(count)])  # defect

    for number in loop():
        batch = make_batch(number)  # defect
        inputs.view(-1)[: batch.numel()].copy_(batch)
        step(inputs, inputs)


def decode_image(data: bytes) -> Tensor:
    """The pixels of a compressed image."""
    return torch.frombuffer(bytearray(zlib.decompress(data)), dtype=torch.uint8).view(3, PIXELS, PIXELS)  # defect


@defect("data-loading", "host-python", names=("decode_image",), share=0.2, also=("pageable-copies", *LATE))
def decoding_images() -> None:
    """Compressed images are decoded in the step's thread."""
    step = training(Images(depth=2))
    stored = [zlib.compress(torch.randint(60, (3, PIXELS, PIXELS), dtype=torch.uint8).numpy().tobytes())]
    labels = torch.zeros(PICTURES, dtype=torch.long, device=DEVICE)
    ready = torch.stack([decode_image(stored[0])] * PICTURES)
    for _ in loop(60):
        images = torch.stack([decode_image(data) for data in stored * PICTURES]) if DEFECT else ready  # defect
        on_device = images.to(DEVICE).to(DTYPE).contiguous(memory_format=torch.channels_last)
        step(on_device, labels)


@defect("cpu-operators", "data-loading", names=("augment",), share=0.2, also=("pageable-copies", *LATE))
def augmenting_on_the_cpu() -> None:
    """Images are scaled and turned by operators on the CPU, in the step."""
    step = training(Images(depth=2))
    stored = torch.rand(PICTURES, 3, PIXELS * 5 // 4, PIXELS * 5 // 4)
    labels = torch.zeros(PICTURES, dtype=torch.long, device=DEVICE)

    def augment(images: Tensor) -> Tensor:
        scaled = F.interpolate(images, size=(PIXELS, PIXELS), mode="bicubic", antialias=True)  # defect
        return (scaled.flip(-1) - scaled.mean()) / scaled.std()  # defect

    ready = augment(stored).to(DEVICE, DTYPE)
    for _ in loop():
        images = augment(stored).to(DEVICE, DTYPE) if DEFECT else ready  # defect
        step(images.contiguous(memory_format=torch.channels_last), labels)


@defect("cpu-operators", "host-python", share=0.2, also=("pageable-copies", "data-loading", *LATE))
def noise_by_numpy() -> None:
    """NumPy draws the noise of each step on the CPU."""
    import numpy

    step = training(Regression())
    generator, inputs = numpy.random.default_rng(0), rows()
    for _ in loop():
        if DEFECT:
            drawn = generator.standard_normal((ROWS // 4, WIDTH), dtype=numpy.float32)  # defect
            inputs[: ROWS // 4].copy_(torch.from_numpy(drawn))  # defect
        else:
            inputs[: ROWS // 4].normal_()
        step(inputs, inputs)


if __name__ == "__main__":
    start()
