"""Scoring rows with a model: un-augmented, in eval mode, without gradients, in large batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.data.dataset import NoisyDataset
from tolerant.data.standardise import Preprocess
from tolerant.kernels.log_prob import log_p_y
from tolerant.train.engine.capture import as_logits, autocast
from tolerant.train.engine.device_rows import Rows
from tolerant.train.model_state import evaluating
from tolerant.train.networks.pretrained import Pretrained

_PIXELS = 32 * 32  # of a CIFAR picture


@dataclass(frozen=True, eq=False)
class Scores:
    """One number for each row, and sums over rows, all still on the device."""

    log_p_y: Tensor
    """float32 [N]: log-probability of the row's label."""
    correct: Tensor
    """bool [N]: the row's label has the highest probability."""
    loss_sum: Tensor
    """float64, summed over rows; 0 without a loss."""


@torch.no_grad()
def score(model: nn.Module, rows: Rows, *, bf16: bool, loss: nn.Module | None = None) -> Scores:
    """Score every row; nothing is read back from the device."""
    log_probs = torch.zeros(len(rows), dtype=torch.float32, device=rows.device)
    correct = torch.zeros(len(rows), dtype=torch.uint8, device=rows.device)
    loss_sum = torch.zeros((), dtype=torch.float64, device=rows.device)
    with evaluating(model):
        size = min(_part_size(model, rows), -(-len(rows) // rows.ranks.size))
        for part, inputs in rows.in_order(size, rows.ranks):
            labels = rows.labels[part]
            logits = _logits(model, inputs, bf16)
            log_probs[part] = log_p_y(logits, labels)
            correct[part] = logits.argmax(1) == labels
            if loss is not None:
                loss_sum += loss(logits, labels) * len(labels)
    rows.ranks.total_([log_probs, correct, loss_sum])
    return Scores(log_probs, correct.bool(), loss_sum)


@torch.no_grad()
def probabilities(model: nn.Module, rows: Rows, *, bf16: bool) -> Tensor:
    """float32 (N, C), on the device."""
    probs = torch.zeros(len(rows), rows.num_classes, dtype=torch.float32, device=rows.device)
    with evaluating(model):
        size = min(_part_size(model, rows), -(-len(rows) // rows.ranks.size))
        for part, inputs in rows.in_order(size, rows.ranks):
            probs[part] = torch.softmax(_logits(model, inputs, bf16), 1)
    rows.ranks.total_([probs])
    return probs


@torch.no_grad()
def predict_log_proba(
    model: nn.Module,
    dataset: NoisyDataset,
    preprocess: Preprocess,
    *,
    device: str | torch.device = "cpu",
) -> np.ndarray:
    """Log-probabilities of all classes, float32 (N, C), in the order of the rows.

    The model is on ``device`` meanwhile, and back where it was afterwards.
    """
    if not len(dataset):
        return np.empty((0, dataset.num_classes), np.float32)
    device = torch.device(device)
    rows = Rows(dataset, dataset.given_labels, preprocess, device, bf16=False)
    home = next((weights.device for weights in model.parameters()), device)
    try:
        with evaluating(model.to(device)):
            parts = [
                torch.log_softmax(_logits(model, inputs, bf16=False), 1).cpu()
                for _, inputs in rows.in_order(_part_size(model, rows))
            ]
    finally:
        model.to(home)
    return torch.cat(parts).numpy()


def _logits(model: nn.Module, inputs: Tensor, bf16: bool) -> Tensor:
    with autocast(inputs.device, bf16):
        logits = model(inputs)
    return as_logits(logits)


def _part_size(model: nn.Module, rows: Rows) -> int:
    """Rows to score at a time, in equal parts: at most 2,500 to fill a GPU, or 500 that fit a CPU's caches.

    Of pictures larger than CIFAR's, or enlarged by the model, fewer, of as many pixels in all: scoring must
    not need more memory than training.
    """
    most = 2500 if rows.device.type == "cuda" else 500
    enlarged = [module.frame.size**2 for module in model.modules() if isinstance(module, Pretrained)]
    most = max(1, most * _PIXELS // max(_PIXELS, rows.pixels, *enlarged))
    parts = -(-len(rows) // most)
    return -(-len(rows) // parts)
