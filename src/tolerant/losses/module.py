"""The loss modules: what `torch.nn.CrossEntropyLoss` takes, plus each loss's own numbers.

A module is a name, a formula and a way to apply it to rows. Its hyper-parameters, their defaults and
their order are read from the formula's signature, so that each stands in one place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tolerant.losses import fused, triton_loss
from tolerant.losses.check import check_reduction, check_tensor
from tolerant.losses.domain import Domain
from tolerant.losses.log_prob import log_softmax
from tolerant.losses.phi import PHI, Phi
from tolerant.losses.reduction import Weighing, check_call, rows_of, weighted_loss

IMPLEMENTATIONS = ("auto", "plain", "fused", "triton")


def check_impl(impl: str) -> None:
    if impl not in IMPLEMENTATIONS:
        raise ValueError(f"impl must be one of {', '.join(IMPLEMENTATIONS)}; got {impl!r}.")


class RobustLoss(nn.Module):
    """Base of all losses: holds hyper-parameters, class weights, ignore_index and the reduction.

    Called as ``loss(logits, labels, sample_weight=None)`` with logits (N, C) or (N, C, d1, ...) and
    labels as class indices (N, d1, ...) or class probabilities of the logits' shape. The loss comes
    back in fp32 at least, the gradient in the logits' dtype.

    Args:
        weight: a factor for each class, as in ``torch.nn.CrossEntropyLoss``.
        ignore_index: the label of rows that do not count, as there.
        reduction: "mean", "sum" or "none", as there.
        impl: how a loss of p_y is computed. "auto" takes "triton" on a GPU and "fused" on a CPU where they
            can be used, else "plain", which is the reference. Losses of the whole row are always plain.
    """

    name: ClassVar[str]
    paper: ClassVar[str]
    limits: ClassVar[str] = ""
    domains: ClassVar[dict[str, Domain]] = {}
    formula: ClassVar[Callable[..., Tensor]]
    _defaults: ClassVar[dict[str, Any]]

    weight: Tensor | None

    def __init__(
        self,
        *positional: Any,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        impl: str = "auto",
        **hyper: Any,
    ) -> None:
        super().__init__()
        if positional:
            # A tensor was meant as class weights, which CrossEntropyLoss takes first.
            meant = "weight" if isinstance(positional[0], Tensor) else next(iter(self._defaults), "weight")
            raise TypeError(
                f"{type(self).__name__} takes its arguments by name; got {positional[0]!r} without one. "
                f"Write {type(self).__name__}({meant}=...)."
            )
        check_impl(impl)
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = reduction  # checked in __setattr__
        self.impl = impl
        self.hyper = self.resolve(**hyper)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if hasattr(cls, "name"):
            common = inspect.signature(RobustLoss.__init__).parameters
            shared = [p for p in common.values() if p.name not in ("self", "positional", "hyper")]
            own = cls.own_parameters()
            cls.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
            # Read once: a signature takes as long as three operations on a small batch.
            cls._defaults = {p.name: p.default for p in own}

    @classmethod
    def own_parameters(cls) -> list[inspect.Parameter]:
        """The formula's keyword-only parameters: the loss's hyper-parameters with their defaults."""
        parameters = inspect.signature(cls.formula).parameters.values()
        return [p for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY]

    @classmethod
    def resolve(cls, **hyper: Any) -> dict[str, Any]:
        """All hyper-parameters, defaults filled in, each checked against its domain."""
        resolved = dict(cls._defaults)
        for name, value in hyper.items():
            if name not in resolved:
                known = ", ".join([*resolved, "weight", "ignore_index", "reduction", "impl"])
                raise TypeError(f"{cls.__name__} has no argument {name!r}. It takes: {known}.")
            # Numpy's numbers, as from linspace or a search, become Python's: a numpy float64 would turn the
            # fp32 arrays it meets into fp64.
            resolved[name] = value.item() if isinstance(value, np.generic) else value
        for name, value in resolved.items():
            if name in cls.domains:
                cls.domains[name].check(name, value)
        return resolved

    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        weighing = Weighing(self.weight, self.ignore_index, self.reduction, sample_weight)
        return self.compute(logits, labels, self.hyper, weighing, self.impl)

    @classmethod
    def compute(
        cls,
        logits: Tensor,
        labels: Tensor,
        hyper: dict[str, Any],
        weighing: Weighing,
        impl: str = "auto",
    ) -> Tensor:
        """The loss without a module: what `forward` and `tolerant.functional` call."""

        def rows(z: Tensor, y: Tensor, row_weight: fused.RowWeight) -> Tensor:
            return fused.weigh(cls.formula(fused.finite_rows(z, row_weight), y, **hyper), row_weight)

        return weighted_loss(logits, labels, weighing, rows)

    def extra_repr(self) -> str:
        shown = dict(self.hyper)
        if self.weight is not None:
            shown["weight"] = f"<{len(self.weight)} classes>"
        if self.ignore_index != -100:
            shown["ignore_index"] = self.ignore_index
        if self.reduction != "mean":
            shown["reduction"] = self.reduction
        return ", ".join(f"{name}={value}" for name, value in shown.items())

    def __setattr__(self, name: str, value: Any) -> None:
        # `loss.q = 0.3` between epochs must reach the formula, not lie beside it.
        hyper = self.__dict__.get("hyper", {})
        if name == "reduction":
            check_reduction(value)
        if name in hyper:
            self.hyper = self.resolve(**{**hyper, name: value})
        else:
            super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        hyper = self.__dict__.get("hyper", {})
        return hyper[name] if name in hyper else super().__getattr__(name)


class PhiLoss(RobustLoss):
    """A loss that looks only at the probability of the given label."""

    phi: ClassVar[Phi]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        cls.phi = PHI[cls.name]
        cls.formula = staticmethod(cls.phi.value)
        cls.domains = cls.phi.domains | cls.__dict__.get("domains", {})
        super().__init_subclass__(**kwargs)

    @classmethod
    def compute(
        cls,
        logits: Tensor,
        labels: Tensor,
        hyper: dict[str, Any],
        weighing: Weighing,
        impl: str = "auto",
    ) -> Tensor:
        if _triton_serves(logits, labels, weighing, impl):
            _, shape = check_call(logits, labels, weighing)
            sample_weight = weighing.sample_weight
            losses = triton_loss.phi_loss(
                rows_of(logits),
                labels.reshape(-1),
                phi=cls.name,
                hyper=hyper,
                weight=weighing.weight,
                sample_weight=None if sample_weight is None else sample_weight.reshape(-1),
                ignore_index=weighing.ignore_index,
                reduction=weighing.reduction,
            )
            return losses.reshape(shape) if weighing.reduction == "none" else losses

        def rows(z: Tensor, y: Tensor, row_weight: fused.RowWeight) -> Tensor:
            if y.is_floating_point():
                per_class = cls.phi(log_softmax(fused.finite_rows(z, row_weight)), **hyper)
                return fused.weigh(fused.weigh(per_class, y).sum(-1), row_weight)
            if _fused_serves(z, impl):
                summed = weighing.reduction != "none"
                return fused.phi_rows(z, y, row_weight, cls.phi, hyper, summed)
            return fused.plain_phi_rows(z, y, row_weight, cls.phi, hyper)

        return weighted_loss(logits, labels, weighing, rows)


def _triton_serves(logits: Tensor, labels: Tensor, weighing: Weighing, impl: str) -> bool:
    check_tensor("labels", labels)
    if impl not in ("auto", "triton") or labels.is_floating_point():
        return False
    serves = triton_loss.available(logits, weighing.weight, weighing.sample_weight)
    if impl == "triton" and not serves:
        raise ValueError(
            "impl='triton' needs logits on a CUDA GPU (compute capability 8.0 or newer) with Triton "
            f"installed; got logits on {logits.device}. impl='auto' falls back by itself."
        )
    return serves


def _fused_serves(logits: Tensor, impl: str) -> bool:
    """Compilers and function transforms look inside the plain path; the fused one is opaque."""
    if impl != "auto":
        return impl == "fused"
    if not logits.is_cpu or torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active():
        return False
    return fused.has_numbers(logits)
