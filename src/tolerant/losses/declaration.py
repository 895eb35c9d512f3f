"""What a loss class declares by its ``__init__``: numbers, their defaults and the values they may take.

The keyword-only arguments that are annotated as numbers are the loss's hyper-parameters. They are put on the
module, and checked, before the ``__init__`` runs, so that it has nothing to do but to call its parent's.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypedDict, get_args, get_origin

from torch import Tensor

from tolerant.checks import Domain

# Those of the losses here.
Q = Annotated[float, Domain(0, 1, way_out="For cross entropy use q=0, for (half of) MAE q=1.")]
K = Annotated[float, Domain(0, 1, open_low=True, open_high=True, way_out="Without truncation use lq.")]
LogZero = Annotated[float, Domain(high=0, open_high=True, way_out="It stands for log 0; the paper has -4.")]
NotNegative = Annotated[float, Domain(0)]
Positive = Annotated[float, Domain(0, open_low=True)]
AboveOne = Annotated[float, Domain(1, open_low=True)]
Share = Annotated[float, Domain(0, 1)]
Inside = Annotated[float, Domain(0, 1, open_low=True, open_high=True)]
Order = Annotated[int, Domain(1, 1000, integer=True)]


class Common(TypedDict, total=False):
    """What every loss takes beside its own numbers; the defaults stand in `RobustLoss`."""

    weight: Tensor | None
    ignore_index: int
    reduction: str
    impl: str


def declare(cls: Any) -> None:
    """Give a loss class its `domains`, `defaults` and full signature, and see that arguments have names."""
    init = vars(cls).get("__init__")
    if init is None:  # its parent's
        return
    parent = next((base for base in cls.__mro__[1:] if hasattr(base, "domains")), None)
    own = list(inspect.signature(init).parameters.values())[1:]
    named = [p for p in own if p.kind is p.KEYWORD_ONLY]
    passes_on = any(p.kind is p.VAR_KEYWORD for p in own)
    if len(named) + passes_on < len(own):
        raise TypeError(
            f"{cls.__name__}.__init__ must take its arguments by name only. "
            f"Write a * before them: def __init__(self, *, {own[0].name}...)."
        )
    numbers = {p.name: domain for p in named if (domain := _domain_of(p, init)) is not None}
    named = [p.replace(annotation=numbers[p.name].kind) if p.name in numbers else p for p in named]
    names = [p.name for p in named]
    more = inspect.signature(parent).parameters.values() if parent and passes_on else ()
    parameters = [*named, *(p for p in more if p.name not in names)]
    cls.domains = {**numbers, **(parent.domains if parent else {}), **numbers}  # its own first
    cls.__signature__ = inspect.Signature(parameters)
    cls.defaults = {
        p.name: p.default for p in parameters if p.name in cls.domains and p.default is not p.empty
    }
    cls.__init__ = _by_name(cls, init, [p for p in named if p.name in numbers])


def _by_name(cls: Any, init: Callable[..., None], numbers: list[inspect.Parameter]) -> Callable[..., None]:
    @functools.wraps(init)
    def __init__(self: Any, *positional: Any, **given: Any) -> None:
        called = type(self) if type(self).__init__ is __init__ else cls
        refuse_unknown(called, positional, given)
        for p in numbers:
            value = given.get(p.name, p.default)
            if value is not p.empty:  # else Python says that it is missing
                setattr(self, p.name, value)
        init(self, **given)

    return __init__


def refuse_unknown(cls: Any, positional: tuple[Any, ...], given: dict[str, Any]) -> None:
    known = cls.__signature__.parameters
    if positional:
        # A tensor was meant as class weights, which CrossEntropyLoss takes first.
        meant = "weight" if isinstance(positional[0], Tensor) else next(iter(known), "weight")
        raise TypeError(
            f"{cls.__name__} takes its arguments by name; got {positional[0]!r} without one. "
            f"Write {cls.__name__}({meant}=...)."
        )
    for name in given:
        if name not in known:
            raise TypeError(f"{cls.__name__} has no argument {name!r}. It takes: {', '.join(known)}.")


def _domain_of(parameter: inspect.Parameter, init: Callable[..., None]) -> Domain | None:
    """The values a hyper-parameter may take; None for an argument that is none."""
    if parameter.name in Common.__annotations__:
        return None
    hint = parameter.annotation
    if isinstance(hint, str):
        try:
            hint = eval(hint, init.__globals__)
        except NameError as error:
            raise TypeError(
                f"the annotation {hint!r} of {parameter.name} in {init.__qualname__} cannot be read: "
                f"{error}. Import or define its names at the top of the module."
            ) from error
    kind, *about = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if kind not in (float, int):
        return None
    return next((one for one in about if isinstance(one, Domain)), Domain(integer=kind is int))
