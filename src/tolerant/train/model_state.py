"""A model's weights and modes, and torch's generator: copied, lent, and given back as they were."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_LENT = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The CPU's generator starts from ``seed``; afterwards it is where the caller had it.

    All threads of a process share it: without the lock, of two that train at once (joblib's threads), one
    would draw its weights from the other's seed.

    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     bool(torch.rand(1) == first)
    True
    """
    with _LENT, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def evaluating_with(model: nn.Module, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Inside, eval mode and these weights (None: the model's own); outside, all as it was."""
    before = to_host(model.state_dict())
    if weights is not None:
        model.load_state_dict(weights)
    try:
        with evaluating(model):
            yield
    finally:
        model.load_state_dict(before)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode inside; outside, each part in the mode it was in (a frozen one stays in eval mode)."""
    modes = {part: part.training for part in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for part, training in modes.items():
            part.training = training


@torch.no_grad()
def copy_into(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    """Copy by name, every name being in both."""
    if targets.keys() != sources.keys():
        odd = sorted(targets.keys() ^ sources.keys())
        raise ValueError(f"the stored weights do not fit the model: {odd[0]!r} is in only one of them.")
    pairs: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for name, target in targets.items():
        source = sources[name]
        if source.shape != target.shape:
            raise ValueError(
                f"the stored {name!r} has shape {tuple(source.shape)}, the model's {tuple(target.shape)}."
            )
        if source.device == target.device and source.dtype == target.dtype:
            to, of = pairs.setdefault(target.dtype, ([], []))  # one kernel for all of a dtype
            to.append(target)
            of.append(source)
        else:
            target.copy_(source)
    for to, of in pairs.values():
        torch._foreach_copy_(to, of)


def clone(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of every tensor, on its device and in its layout."""
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


def to_host(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A copy of every tensor on the host, where a second set of weights costs no GPU memory.

    Contiguous: safetensors has no channels-last layout, and loading copies into the present tensors.
    """
    return {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
