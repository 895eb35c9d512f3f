"""The loops that bench_train.py compares, in images a second: two that people write, and the trainer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from common import synchronize
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from tolerant.data import NoisyDataset
from tolerant.data.augment import augment, draw
from tolerant.train import Job, Recipe, Run, build

SGD = {"lr": 0.01, "momentum": 0.9, "weight_decay": 2e-4}
Rate = Callable[[], float]


@dataclass(frozen=True)
class Size:
    """Of a batch and of its rows."""

    batch: int
    shapes: dict[str, tuple[int, ...]]


FULL = Size(128, {"resnet34": (32, 32, 3), "resnet18": (28, 28, 1), "small-cnn": (32, 32, 3), "mlp": (784,)})
TINY = Size(4, {"resnet34": (8, 8, 3), "resnet18": (8, 8, 1), "small-cnn": (8, 8, 3), "mlp": (12,)})


def random_rows(model: str, num_batches: int, size: Size) -> NoisyDataset:
    rng = np.random.default_rng(0)
    num_rows = num_batches * size.batch
    shape = (num_rows, *size.shapes[model])
    labels = rng.integers(0, 10, num_rows)
    names = tuple(str(label) for label in range(10))
    if model == "mlp":
        return NoisyDataset(rng.normal(size=shape).astype(np.float32), labels, None, names)
    return NoisyDataset(rng.integers(0, 256, shape, np.uint8), labels, None, names, None, "image")


class PerSample(Dataset[tuple[Tensor, Tensor]]):
    """uint8 pictures in memory; each is scaled, centred, flipped and cropped on its own."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images, self.labels = images.permute(0, 3, 1, 2).contiguous(), labels
        self.mean = (self.images.float() / 255).mean(0)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, row: int) -> tuple[Tensor, Tensor]:
        image = self.images[row].float() / 255 - self.mean
        if torch.rand(()) < 0.5:
            image = image.flip(2)
        padded = nn.functional.pad(image, (4, 4, 4, 4))
        top, left = (int(torch.randint(9, ())) for _ in range(2))
        height, width = image.shape[1:]
        return padded[:, top : top + height, left : left + width], self.labels[row]


def _small_cnn_as_written() -> nn.Module:
    """The same function as the trainer's, with the usual order of its layers: pooling after ReLU."""
    layers: list[nn.Module] = []
    for width_in, width in ((3, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(width_in, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)] if width < 128 else [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(128, 10))
    ours, x = build("small-cnn", 10), torch.rand(4, 3, 32, 32)
    with torch.no_grad():
        for mine, theirs in zip(model.parameters(), ours.parameters(), strict=True):
            mine.copy_(theirs)
        torch.testing.assert_close(model(x), ours(x))
    return model


def default_loop(name: str, data: NoisyDataset, batch: int, *, loader: bool) -> Rate:
    """fp32, NCHW, eager, torch.optim.SGD as it comes; with or without its DataLoader."""
    model = _small_cnn_as_written() if name == "small-cnn" else _build(name, data)
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    inputs, labels = torch.from_numpy(data.inputs), torch.from_numpy(data.given_labels)
    rows: Dataset[Any] = TensorDataset(inputs, labels)
    if data.kind == "image":
        rows = PerSample(inputs, labels)
    ready = list(DataLoader(rows, batch, shuffle=True))
    loss = nn.CrossEntropyLoss()

    def epoch() -> float:
        start = time.perf_counter()
        for x, y in DataLoader(rows, batch, shuffle=True) if loader else ready:
            optimizer.zero_grad()
            loss(model(x), y).backward()
            optimizer.step()
        return len(labels) / (time.perf_counter() - start)

    return epoch


def fp32_eager(
    name: str, data: NoisyDataset, batch: int, device: torch.device, *, steps: int, tf32: bool
) -> Rate:
    """What public code does, without its loader: fp32 NCHW on the GPU, batched flip and crop there.

    torch rounds the inputs of convolutions to TF32 unless told otherwise; both are measured.
    """
    model = _build(name, data).to(device)
    optimizer = torch.optim.SGD(model.parameters(), **SGD)
    images = torch.from_numpy(data.inputs).to(device)
    labels = torch.from_numpy(data.given_labels).to(device)
    drawn = torch.Generator(device).manual_seed(0)
    mean = images.float().mean(0) / 255
    loss = nn.CrossEntropyLoss()

    def epoch() -> float:
        order = torch.randperm(len(labels), device=device)
        flip, shift = draw(len(labels), drawn)
        synchronize(device)
        start = time.perf_counter()
        torch.backends.cudnn.allow_tf32 = tf32
        for step in range(steps):
            index = order[step * batch : (step + 1) * batch]
            x = augment(images[index], mean=mean, flip=flip[index], shift=shift[index])
            optimizer.zero_grad()
            loss(model(x.contiguous()), labels[index]).backward()
            optimizer.step()
        synchronize(device)
        torch.backends.cudnn.allow_tf32 = True
        return steps * batch / (time.perf_counter() - start)

    return epoch


def ours(
    name: str,
    data: NoisyDataset,
    batch: int,
    device: torch.device,
    *,
    runs: int = 1,
    steps: int | None = None,
    **changes: Any,
) -> Rate:
    """``runs`` runs side by side, one thread giving each a step in turn."""
    graph = changes.pop("graph", None)
    recipe = replace(Recipe(batch_size=batch, validation_fraction=0.0, select="last"), **changes)
    fleet = []
    for seed in range(runs):
        job = Job(dataset=data, model=name, loss=nn.CrossEntropyLoss(), recipe=replace(recipe, seed=seed))
        fleet.append(Run(job, device, graph=graph))

    def each(do: Callable[[Run], Any]) -> None:
        for run in fleet:
            with torch.cuda.stream(run.stepper.stream):
                do(run)

    def begin(run: Run) -> None:
        order, draws, seed = run.draw_epoch()
        run.stepper.begin(order, draws, 0.01, seed)

    def epoch() -> float:
        each(begin)
        each(lambda run: run.stepper.step() if run.stepper._graph is None else None)  # captures
        each(begin)
        synchronize(device)
        count = steps or fleet[0].stepper.num_steps
        start = time.perf_counter()
        for _ in range(count):
            each(lambda run: run.stepper.step())
        synchronize(device)
        images = len(data) if steps is None else steps * batch
        return runs * images / (time.perf_counter() - start)

    return epoch


def _build(name: str, data: NoisyDataset) -> nn.Module:
    shape = data.inputs.shape[1:]
    if name == "mlp":
        return build(name, 10, num_features=shape[0])
    return build(name, 10, in_channels=shape[2], image_size=shape[:2])
