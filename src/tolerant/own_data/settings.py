"""What a user may set of a training on rows of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from torch import nn

from tolerant.checks import Domain, check_seed, unwrap_numbers
from tolerant.train.engine.recipe import Precision

TRUNCATED = "truncated-lq"
Method = Literal["prune", "rounds"]
ModelFactory = Callable[[tuple[int, ...], int], nn.Module]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may set; what is None or "auto" is chosen by the data."""

    model: Any = "auto"
    """"auto", the name of a network or of a classifier (`tolerant.own_data.classifiers.cards`), a function
    (`ModelFactory`), or a classifier of scikit-learn's kind. "auto" tries classifiers on tables and texts;
    for pictures, and where something is set that only networks have, it is a network."""
    model_args: Mapping[str, Any] = field(default_factory=dict)
    loss: str | nn.Module = TRUNCATED
    """A name of the registry. "truncated-lq" trains by the paper's algorithm: L_q, and pruning at k."""
    method: Method = "prune"
    """"rounds": nothing is pruned for good, but each row trains under the label that seems to be its own."""
    q: float | Literal["auto"] = "auto"
    """"auto": :func:`~tolerant.theory.choose_q`, by the number of classes; at most 0.3 for a few
    thousand photographs."""
    k: float | Literal["auto"] = 0.5
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float = 1e-4
    validation_fraction: float = 0.1
    standardise: bool = True
    """Tables: subtract each column's mean and divide by its deviation. Not for sparse rows, which would lose
    their zeros."""
    pretrained: bool = False
    """The rows are features of a pretrained extractor: a linear model is enough, and dropout keeps it from
    learning single rows."""
    class_weight: Literal["auto", "balanced", "none"] = "auto"
    """How far predictions are moved towards rare classes: as far as the given labels ask for, as if all were
    as frequent, or not at all. Networks: "balanced" weighs the rows, the others do nothing."""
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        if self.q != "auto" and self.q not in Domain(0, 1):
            raise ValueError(
                f"q must be in [0, 1] or 'auto'; got {self.q!r}. For cross entropy use loss='cce'."
            )
        if self.k != "auto" and self.k not in Domain(0, 1, open_low=True, open_high=True):
            raise ValueError(
                f"k must be in (0, 1) or 'auto'; got {self.k!r}. To leave no row out use loss='lq'."
            )
        if self.method not in get_args(Method):
            raise ValueError(f"method must be one of {', '.join(get_args(Method))}; got {self.method!r}.")
        if self.method == "rounds" and self.loss != TRUNCATED:
            raise ValueError(
                f"method 'rounds' has losses of its own; got loss {self.loss!r}. Leave one of the two out."
            )
        if not isinstance(self.loss, str | nn.Module):
            raise ValueError(f"loss must be a name or a loss such as LqLoss(q=0.7); got {self.loss!r}.")
        for name in ("epochs", "batch_size", "lr"):
            value = getattr(self, name)
            if value is not None and value not in Domain(0, open_low=True):
                raise ValueError(f"{name} must be above 0, or None to have it chosen; got {value!r}.")
        if self.class_weight not in ("auto", "balanced", "none"):
            raise ValueError(f"class_weight must be 'auto', 'balanced' or 'none'; got {self.class_weight!r}.")
        check_seed(self.seed)

    @property
    def of_networks(self) -> list[str]:
        """What is set that only networks have."""
        # A default stands in the class, unless it is made anew for each: the empty options.
        found = [name for name in _OF_NETWORKS if getattr(self, name) != getattr(Settings, name, {})]
        return found if self.loss == TRUNCATED else ["loss", *found]

    def refuse_of_networks(self) -> None:
        """A ValueError if something is set that the model would ignore."""
        found = [name for name in self.of_networks if name not in ("loss", "q")]
        if found:
            raise ValueError(
                f"{found[0]} is for networks; the model {self.model!r} has none. Leave it out, or name a "
                "network: model='network' (--model network)."
            )


# The loss, too, but classifiers know some.
_OF_NETWORKS = (
    "model_args",
    "method",
    "q",
    "k",
    "epochs",
    "batch_size",
    "lr",
    "weight_decay",
    "validation_fraction",
    "precision",
)
