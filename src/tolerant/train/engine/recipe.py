"""How one run is trained: every number of the protocol, in one frozen value."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tolerant.checks import Domain, check_seed, check_whole, is_whole, unwrap_numbers
from tolerant.hints import did_you_mean

Augment = Literal["flip-crop", "flip", "crop", "strong", "none"]
Center = Literal["pixel", "channel", "none"]
Scale = Literal["auto", "unit", "std"]
Schedule = Literal["milestones", "cosine"]
DecayOn = Literal["all", "matrices"]
OptimizerName = Literal["sgd", "adam"]
Precision = Literal["auto", "fp32", "bf16"]
PruneBy = Literal["filter", "weight"]
Select = Literal["validation", "last"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One training protocol. The defaults are Zhang & Sabuncu 2018, section 4, for CIFAR-10.

    ``weight_decay`` is torch's: the gradient gains ``weight_decay * w``. The paper's 1e-4, read as
    a penalty ``1e-4 ||w||^2``, has gradient ``2e-4 w``.

    >>> recipe = Recipe(epochs=120)
    >>> [recipe.lr_at(epoch) for epoch in (0, 39, 40, 80)]
    [0.01, 0.01, 0.001, 0.0001]
    """

    epochs: int = 120
    batch_size: int = 128
    optimizer: OptimizerName = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    nesterov: bool = False
    weight_decay: float = 2e-4
    decay_on: DecayOn = "all"
    """The weights that decay: all of them, or not those of batch norm and biases."""
    schedule: Schedule = "milestones"
    """How the learning rate falls: at milestones, or along half a cosine, to 0."""
    warm_up: float = 0.0
    """Share of the epochs in which the rate first rises from 0."""
    milestones: tuple[int, ...] = (40, 80)
    """Epochs (finished ones) after which the learning rate is multiplied by ``lr_decay``."""
    lr_decay: float = 0.1
    lr_step_decay: float = 0.0
    """The rate is divided by 1 + ``lr_step_decay`` times the steps so far, as by ``decay`` in Keras's SGD."""
    augment: Augment = "flip-crop"
    """Images only: horizontal flip, and crop after zero padding by 4 pixels on each side; or "strong", which
    turns, shears, zooms, recolours and covers (`tolerant.data.distort`)."""
    mirror: bool = False
    """Pictures are judged, and those to come predicted, by the mean over them and their mirror images."""
    mixup: float = 0.0
    """Above 0, rows are blended in pairs, with shares of Beta(mixup, mixup)."""
    average: float = 0.0
    """Above 0, the weights are averaged over steps, with this share of the average kept at each; the averaged
    ones are judged by and are the result."""
    center: Center = "pixel"
    """Subtract the training rows' mean per pixel (in a table: per column) or per channel."""
    scale: Scale = "auto"
    """"unit": pixels / 255, tables as they are; "std": divided by the training rows' standard
    deviation too. "auto" is "unit" for images and "std" for tables."""
    batch_norm_momentum: float | None = None
    """None leaves the model's own (torch: 0.1)."""
    dropout: float = 0.0
    """For models built by name."""
    precision: Precision = "auto"
    """"auto" is bf16 on a GPU that has it and on a CPU with AMX, else fp32."""
    compile: bool = False
    """torch.compile the model: about a minute once, then faster steps."""
    validation_fraction: float = 0.1
    """Share of the (noisy) rows kept for validation; 0 trains on all and needs select="last"."""
    select: Select = "validation"
    """The epoch whose weights are the result: best noisy-validation accuracy, or the last."""
    prune_by: PruneBy = "filter"
    """Pruned rows leave the epoch ("filter") or stay with weight 0 ("weight")."""
    score_every: int = 10
    """Epochs between scorings of the training rows, for mean p_y in the history; 0: never."""
    test_every: int = 1
    """Epochs between looks at the test rows, which choose nothing; the last epoch has one in any case."""
    seed: int = 0
    """Of the split, the weights, the order of rows and their augmentation. On a CPU a seed gives the same
    bits, alone or beside other runs; with another number of threads convolutions round differently."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        if isinstance(self.milestones, Iterable):
            object.__setattr__(self, "milestones", tuple(self.milestones))
        if not isinstance(self.milestones, tuple) or not all(map(is_whole, self.milestones)):
            raise ValueError(f"milestones must be whole numbers, as in (40, 80); got {self.milestones!r}.")
        for name, choices in _CHOICES.items():
            value = getattr(self, name)
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(choices)}; got {value!r}.")
        for name, least in _LEAST.items():
            check_whole(getattr(self, name), name, least=least)
        check_seed(self.seed)
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                raise ValueError(f"{name} must be true or false; got {getattr(self, name)!r}.")
        for name, domain in _NUMBERS.items():
            domain.check(name, getattr(self, name))
        if self.batch_norm_momentum is not None:
            _OF_BATCH_NORM.check("batch_norm_momentum", self.batch_norm_momentum)
        if self.nesterov and not (self.optimizer == "sgd" and self.momentum):
            raise ValueError("nesterov=True needs optimizer='sgd' with a momentum above 0.")
        if self.test_every > 1 and self.select == "validation":
            raise ValueError(
                f"test_every must be 1 where validation rows choose the epoch, which may be any; got "
                f"{self.test_every}. Use select='last'."
            )
        rising = list(self.milestones) == sorted(set(self.milestones))
        if not rising or min(self.milestones, default=1) < 1:
            raise ValueError(f"milestones must be rising epochs, 1 or more; got {self.milestones!r}.")
        if self.validation_fraction == 0 and self.select == "validation":
            raise ValueError(
                "select='validation' needs validation rows; got validation_fraction=0. "
                "Use select='last' to train on every row."
            )

    def lr_at(self, epoch: int, part: float = 0.0, steps: int = 0) -> float:
        """The learning rate in an epoch, the first being 0, of which this ``part`` is over, after so many
        steps of the whole training."""
        drops = sum(epoch >= milestone for milestone in self.milestones)
        lr, time = self.lr * self.lr_decay**drops, (epoch + part) / self.epochs
        if self.schedule == "cosine":
            lr = self.lr * (1 + math.cos(math.pi * max(time - self.warm_up, 0) / (1 - self.warm_up))) / 2
        if time < self.warm_up:
            lr *= time / self.warm_up
        # Rounded so that 0.01 * 0.1 ** 2 reads 0.0001, not 0.00010000000000000002.
        return float(f"{lr / (1 + self.lr_step_decay * steps):.12g}")

    @property
    def lr_moves(self) -> bool:
        """Whether the learning rate changes within an epoch."""
        return self.schedule == "cosine" or self.warm_up > 0 or self.lr_step_decay > 0

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back.

        What came later is left out at its default: keys and checkpoints of before stay what they are.
        """
        values = {**asdict(self), "milestones": list(self.milestones)}
        usual = {each.name: each.default for each in fields(self) if each.name in _LATER}
        return {name: value for name, value in values.items() if name not in usual or value != usual[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Recipe:
        """Build from plain values; an unknown key is named with the nearest known one.

        >>> Recipe.from_dict({"lerning_rate": 0.1})
        Traceback (most recent call last):
            ...
        ValueError: unknown recipe key 'lerning_rate'...
        """
        check_keys("recipe", values, cls)
        return cls(**values)


def check_keys(what: str, values: Mapping[str, Any], cls: type) -> None:
    """A ValueError for the first key that is not a field of the dataclass ``cls``."""
    known = [field.name for field in fields(cls)]
    for key in values:
        if key not in known:
            hint = did_you_mean(key, known, cutoff=0.4) or f"Known: {', '.join(known)}."
            raise ValueError(f"unknown {what} key {key!r}. {hint}")


# Fields that the first stored rows do not have.
_LATER = (
    "nesterov",
    "decay_on",
    "schedule",
    "warm_up",
    "lr_step_decay",
    "mirror",
    "mixup",
    "average",
    "test_every",
)

_LEAST = {"epochs": 1, "batch_size": 2, "score_every": 0, "test_every": 1}
_NUMBERS = {
    **dict.fromkeys(("lr", "lr_decay"), Domain(0, open_low=True)),
    **dict.fromkeys(("weight_decay", "lr_step_decay", "mixup"), Domain(0)),
    **dict.fromkeys(
        ("momentum", "dropout", "validation_fraction", "warm_up", "average"), Domain(0, 1, open_high=True)
    ),
}
_OF_BATCH_NORM = Domain(0, 1, open_low=True, way_out="None leaves the model's own.")

_HINTS = get_type_hints(Recipe)
_CHOICES = {name: get_args(hint) for name, hint in _HINTS.items() if get_origin(hint) is Literal}
_FLAGS = [name for name, hint in _HINTS.items() if hint is bool]
