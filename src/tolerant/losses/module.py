"""The loss modules: what `torch.nn.CrossEntropyLoss` takes, plus each loss's own numbers.

A call goes from `forward` to `reduction`, which makes rows and weighs them, to the way of computing that
`kernels.can` names, and back to `reduction`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, ParamSpec, Protocol, Self, TypeVar, cast

import numpy as np
from torch import Tensor, nn

from tolerant.checks import Domain
from tolerant.kernels import can, cpu, plain
from tolerant.kernels.plain import finite_rows, weigh
from tolerant.kernels.triton.loss import phi_loss
from tolerant.losses.declaration import declare, refuse_unknown
from tolerant.losses.input_checks import check_impl, check_reduction
from tolerant.losses.reduction import to_rows, weigh_rows

P = ParamSpec("P")
T = TypeVar("T")
Logits = TypeVar("Logits", contravariant=True)


def reverse_mode_only(function: Callable[P, T]) -> Callable[P, T]:
    """Says what to do where torch asks for a forward-mode derivative.

    Our autograd functions define no jvp: torch.compile would refuse them, and torch would return 0 for a
    second jacfwd.
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except NotImplementedError as error:
            if "forward mode AD" not in str(error):
                raise
            raise NotImplementedError(
                "the losses have no forward-mode derivative, which torch.func's jvp, jacfwd and hessian "
                "need. Use reverse mode: vjp, jacrev, and jacrev(jacrev(loss)) for the Hessian."
            ) from error

    return wrapped


class NoTorchScript(nn.Module):
    """Base of loss modules: TorchScript, which torch has given up, ends in an error that says how else."""

    def __prepare_scriptable__(self) -> NoReturn:
        self._refuse("torch.jit.script")

    def _slow_forward(self, *arguments: Any, **named: Any) -> NoReturn:  # what torch calls while it traces
        self._refuse("torch.jit.trace")

    def _refuse(self, what: str) -> NoReturn:
        name = type(self).__name__
        raise NotImplementedError(
            f"{what} cannot take {name}, whose way of computing is chosen when it is called. Use "
            "torch.export.export(loss, (logits, labels)) or torch.compile(loss); to script a model, leave "
            "its loss out."
        )


class RobustLoss(NoTorchScript):
    """Base of all losses: holds hyper-parameters, class weights, ignore_index and the reduction.

    Called as ``loss(logits, labels, sample_weight=None)`` with logits (N, C) or (N, C, d1, ...) and
    labels as class indices (N, d1, ...) or class probabilities of the logits' shape. The loss comes
    back in fp32 at least, the gradient in the logits' dtype.

    Args:
        weight: a factor for each class, as in ``torch.nn.CrossEntropyLoss``; kept as ``class_weight``.
        ignore_index: the label of rows that do not count, as there.
        reduction: "mean", "sum" or "none", as there.
        impl: how a loss of p_y is computed. "auto" takes "triton" on a GPU and "fused" on a CPU where they
            can be used, else "plain", which is the reference. Losses of the whole row are always plain.
    """

    name: ClassVar[str]  # in the registry
    paper: ClassVar[str] = ""
    domains: ClassVar[dict[str, Domain]] = {}  # of the hyper-parameters; like the defaults, from `__init__`
    defaults: ClassVar[dict[str, Any]] = {}

    class_weight: Tensor | None
    ignore_index: int
    reduction: str
    impl: str

    def __init__(
        self,
        *,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: str = "mean",
        impl: str = "auto",
    ) -> None:
        super().__init__()
        self.register_buffer("class_weight", weight)
        self.ignore_index, self.reduction, self.impl = ignore_index, reduction, impl

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        declare(cls)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # A checkpoint from before the one line was changed has CrossEntropyLoss's name for class weights.
        # Without class weights here it stays an unexpected key, under the name that the file has.
        if self.class_weight is not None and f"{prefix}weight" in state_dict:
            state_dict.setdefault(f"{prefix}class_weight", state_dict.pop(f"{prefix}weight"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def row_losses(self, logits: Tensor, labels: Tensor) -> Tensor:
        """The loss of each row, (N): of logits (N, C) and labels (N), or the labels' probabilities (N, C)."""
        raise NotImplementedError(f"{type(self).__name__} must define row_losses(self, logits, labels).")

    @reverse_mode_only
    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = weigh_rows(self, to_rows(self, logits, labels, sample_weight))
        losses = self.row_losses(finite_rows(rows.logits, rows.weight), rows.labels)
        return rows.reduce(weigh(losses, rows.weight))

    @property
    def hyper(self) -> dict[str, Any]:
        """The hyper-parameters as they are now."""
        return {name: getattr(self, name) for name in self.domains}

    @classmethod
    def bare(cls, **options: Any) -> Self:
        """The loss for one call, without a module's machinery, which takes ten times as long to set up."""
        refuse_unknown(cls, (), options)
        options = {**_COMMON, **cls.defaults, **options}
        loss = cls.__new__(cls)
        weight = options.pop("weight")
        numbers = {name: cls._checked(name, value) for name, value in options.items()}
        loss.__dict__.update(class_weight=weight, **numbers)
        return loss

    def frozen(self, **changes: Any) -> Self:
        """The loss as it is now, or changed: a backward pass may come after ``loss.q = ...``."""
        loss = type(self).__new__(type(self))
        loss.__dict__.update(self.__dict__, **changes)
        return loss

    @classmethod
    def _checked(cls, name: str, value: Any) -> Any:
        if name in cls.domains:
            # Numpy's numbers, as from linspace or a search, become Python's, which print as one types them.
            value = value.item() if isinstance(value, np.generic) else value
            cls.domains[name].check(name, value)
        elif name == "reduction":
            check_reduction(value)
        elif name == "impl":
            check_impl(value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, self._checked(name, value))

    if TYPE_CHECKING:  # the hyper-parameters

        def __getattr__(self, name: str) -> Any: ...

    def extra_repr(self) -> str:
        shown = self.hyper
        if self.class_weight is not None:
            shown["weight"] = f"<{len(self.class_weight)} classes>"
        if self.ignore_index != _COMMON["ignore_index"]:
            shown["ignore_index"] = self.ignore_index
        if self.reduction != _COMMON["reduction"]:
            shown["reduction"] = self.reduction
        return ", ".join(f"{name}={value}" for name, value in shown.items())


declare(RobustLoss)
_COMMON = {p.name: p.default for p in inspect.signature(RobustLoss).parameters.values()}


class PhiLoss(RobustLoss):
    """A loss that looks only at the probability of the given label, phi(log p_y); the base of your own.

    Two methods make one: ``phi``, and ``weight``, which is -d phi / d log p_y. Both map a tensor of any shape
    element by element. The keyword-only arguments of ``__init__`` that are annotated as numbers are its
    hyper-parameters, and there as ``self.NAME``; ``Annotated[float, Domain(0, 1)]`` says what they may be.

    >>> import torch
    >>> class Poly1Loss(PhiLoss):
    ...     def __init__(self, *, epsilon: float = 1.0, **common) -> None:
    ...         super().__init__(**common)
    ...
    ...     def phi(self, log_p_y):
    ...         return -log_p_y - self.epsilon * torch.expm1(log_p_y)
    ...
    ...     def weight(self, log_p_y):
    ...         return 1 + self.epsilon * torch.exp(log_p_y)
    >>> loss = Poly1Loss(epsilon=2.0, reduction="sum")
    >>> loss
    Poly1Loss(epsilon=2.0, reduction=sum)
    >>> loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    tensor(1.6931)
    """

    form: ClassVar[str] = ""  # its name in `kernels.triton.forms`, which need not have it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        written = [name for name in ("phi", "weight") if name in vars(cls)]
        if len(written) == 1:
            raise TypeError(
                f"{cls.__name__} must define both phi(self, log_p_y) and weight(self, log_p_y), which is "
                f"-d phi / d log_p_y; got {written[0]} alone. The weight is written out because autograd's "
                "has no digits left where p_y is small."
            )
        if written:  # the fast forms are those of the formulas here, whatever a class elsewhere is called
            cls.form = vars(cls).get("name", "") if cls.__module__.startswith("tolerant.losses.") else ""

    def phi(self, log_p_y: Tensor) -> Tensor:
        """The loss as a function of log p_y."""
        raise NotImplementedError(f"{type(self).__name__} must define phi(self, log_p_y).")

    def weight(self, log_p_y: Tensor) -> Tensor:
        """What the gradient of cross entropy is multiplied by: -d phi / d log p_y."""
        raise NotImplementedError(f"{type(self).__name__} must define weight(self, log_p_y).")

    @reverse_mode_only
    def forward(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor:
        rows = to_rows(self, logits, labels, sample_weight)
        way = can.way_of_loss(
            rows.logits, rows.labels, self.class_weight, rows.sample_weight, form=self.form, impl=self.impl
        )
        loss = self.frozen()
        if way == "triton":  # weighs and reduces by itself
            value = phi_loss(rows.logits, rows.labels, rows.sample_weight, loss)
            return value.reshape(rows.shape) if self.reduction == "none" else value
        z, y, row_weight, *_ = weighed = weigh_rows(self, rows)
        if way == "fused":
            return weighed.reduce(cpu.phi_rows(z, y, row_weight, loss, self.reduction != "none"))
        return weighed.reduce(plain.phi_rows(z, y, row_weight, loss))

    def plain_value(self, logits: Tensor, labels: Tensor, sample_weight: Tensor | None) -> Tensor:
        """What `forward` here gives, by the plain way; a child's own `forward` may do more with it."""
        return PhiLoss.forward(self.frozen(impl="plain"), logits, labels, sample_weight)


class _Loss(Protocol[Logits]):
    def forward(self, logits: Logits, labels: Tensor, sample_weight: Tensor | None = None) -> Tensor: ...


class LossFunction(Protocol[Logits, P]):
    """A function with the arguments of a loss class."""

    def __call__(
        self,
        logits: Logits,
        labels: Tensor,
        sample_weight: Tensor | None = None,
        *none: P.args,
        **options: P.kwargs,
    ) -> Tensor: ...


def function_of(loss: Callable[P, _Loss[Logits]]) -> LossFunction[Logits, P]:
    """The functional form of a loss class: ``lq_loss(logits, labels, sample_weight=None, *, q=0.7, ...)``."""
    cls = cast("type[RobustLoss]", loss)

    def function(logits: Any, labels: Tensor, sample_weight: Tensor | None = None, **options: Any) -> Tensor:
        return cls.bare(**options).forward(logits, labels, sample_weight)

    _, *called_with = inspect.signature(cls.forward).parameters.values()
    arguments = [*called_with, *inspect.signature(cls).parameters.values()]
    function.__signature__ = inspect.Signature(arguments)  # type: ignore[attr-defined]
    function.__name__ = function.__qualname__ = f"{cls.name.replace('-', '_')}_loss"
    function.__module__ = cls.__module__
    summary = (cls.__doc__ or "").splitlines()[0]
    function.__doc__ = f"{summary}\n\nThe functional form of `tolerant.{cls.__name__}`."
    return cast("LossFunction[Logits, P]", function)
