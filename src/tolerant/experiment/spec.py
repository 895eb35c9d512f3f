"""What a run is: every value that decides its numbers, and the key made of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal, get_args

from tolerant.checks import Domain
from tolerant.experiment.names import method_name
from tolerant.losses.registry import loss_class
from tolerant.train import PruneSchedule, Recipe, Round
from tolerant.train.engine.recipe import check_keys
from tolerant.train.rounds.round import check_rounds

# Part of every key. Raise it when the same spec would train to other numbers than before
# (order of rows, initialisation, schedule, a loss): the stored rows then no longer count as done.
TRAINING_VERSION = 2

Args = Mapping[str, Any] | tuple[tuple[str, Any], ...]
TransitionSource = Literal["none", "true", "estimated"]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run. Equal specs train to equal numbers; anything that changes them is a field here.

    The recipe's seed also draws the noise, so that a seed is a new initialisation and new wrong
    labels (the paper, section 4), and all methods meet the same wrong labels.

    >>> spec = RunSpec(dataset="digits", model="mlp", loss="lq", loss_args={"q": 0.7})
    >>> RunSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    True
    >>> spec.key == replace(spec, noise_rate=0.1).key
    False
    """

    dataset: str
    model: str
    loss: str = "cce"
    loss_args: Args = ()
    """Hyper-parameters of the loss, given as a dict; those left out are filled in."""
    model_args: Args = ()
    """Options of the model; given as a dict."""
    noise: str = "none"
    noise_rate: float = 0.0
    transition: TransitionSource = "none"
    """Forward correction with the true matrix, one estimated from a CCE run, or none."""
    anchor_percentile: float | None = None
    """Which percentile of a class's probabilities the estimate of T reads; None: 97, above 33 classes 100."""
    prune: PruneSchedule | None = None
    rounds: tuple[Round, ...] = ()
    """A method of several trainings; they have losses, pruning and epochs of their own, and the recipe's
    epochs are all of theirs."""
    recipe: Recipe = field(default_factory=Recipe)
    protocol: str = "custom"
    """The experiment it belongs to; a changed one names its changes: "gce2018-table1 epochs=2"."""

    def __post_init__(self) -> None:
        resolved = {**loss_class(self.loss).defaults, **dict(self.loss_args)}
        object.__setattr__(self, "loss_args", _frozen_args(resolved))
        object.__setattr__(self, "model_args", _frozen_args(self.model_args))
        object.__setattr__(self, "noise_rate", float(self.noise_rate))  # 0 and 0.0: one key
        if self.rounds:
            if self.prune is not None or self.loss != "cce":
                raise ValueError("rounds have a loss and prune of their own: leave those of the spec out.")
            check_rounds(self.rounds, self.recipe)
            object.__setattr__(self, "rounds", tuple(self.rounds))
            total = sum(each.epochs for each in self.rounds)
            object.__setattr__(self, "recipe", replace(self.recipe, epochs=total))
        Domain(0, 1).check("noise_rate", self.noise_rate)
        if self.anchor_percentile is not None:
            Domain(0, 100, open_low=True).check("anchor_percentile", self.anchor_percentile)
        if self.transition not in get_args(TransitionSource):
            raise ValueError(
                f"transition must be one of {', '.join(get_args(TransitionSource))}; got {self.transition!r}."
            )

    @property
    def seed(self) -> int:
        return self.recipe.seed

    @property
    def method(self) -> str:
        """The name of what is compared: `cce`, `forward-true`, `truncated-lq`, ..."""
        return method_name(self.to_dict())

    @property
    def key(self) -> str:
        """16 hex digits of the hash of every value and of the training code's version."""
        values = {"training_version": TRAINING_VERSION, **self.to_dict()}
        text = json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def needs(self) -> RunSpec | None:
        """The run whose estimate of the transition matrix this one trains with."""
        if self.transition != "estimated":
            return None
        return replace(self, loss="cce", loss_args=(), transition="none", prune=None)

    def title(self) -> str:
        """One line for people."""
        noise = self.noise if self.noise_rate == 0 else f"{self.noise} {self.noise_rate:g}"
        usual = loss_class(self.loss).defaults
        unusual = [(name, v) for name, v in dict(self.loss_args).items() if v != usual.get(name)]
        extra = "".join(f" {name}={value}" for name, value in unusual)
        return f"{self.dataset} {noise} {self.method}{extra} seed {self.seed}"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        # They came later: at their defaults keys of before stay what they are.
        if self.anchor_percentile is None:
            del values["anchor_percentile"]
        values["rounds"] = [each.to_dict() for each in self.rounds]
        if not self.rounds:
            del values["rounds"]
        return {
            **values,
            "loss_args": dict(self.loss_args),
            "model_args": dict(self.model_args),
            "prune": None if self.prune is None else asdict(self.prune),
            "recipe": self.recipe.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSpec:
        """Build from plain values; an unknown key is named with the nearest known one.

        >>> RunSpec.from_dict({"dataset": "digits", "model": "mlp", "los": "cce"})
        Traceback (most recent call last):
            ...
        ValueError: unknown spec key 'los'. Did you mean 'loss'?
        """
        values = dict(values)
        check_keys("spec", values, cls)
        if values.get("prune") is not None:
            check_keys("prune", values["prune"], PruneSchedule)
            values["prune"] = PruneSchedule(**values["prune"])
        values["rounds"] = tuple(map(Round.from_dict, values.get("rounds", ())))
        if "recipe" in values:
            values["recipe"] = Recipe.from_dict(values["recipe"])
        return cls(**values)


def _frozen_args(args: Args) -> Args:
    """Sorted pairs, lists as tuples: hashable, and the same whichever way they were written."""
    pairs = sorted(dict(args).items())
    return tuple((name, tuple(v) if isinstance(v, list) else v) for name, v in pairs)


def rows_by_key(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Stored rows by the key their spec has today.

    A field that the spec has got since then counts with its default, which means "as before" (else the
    training version would have been raised), so old rows stay done.
    """
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        found.setdefault(row["key"], row)
        if row["versions"].get("training") == TRAINING_VERSION:
            try:
                found.setdefault(RunSpec.from_dict(row["spec"]).key, row)
            except (ValueError, TypeError, LookupError, AttributeError):
                continue  # a value that no longer exists, or never did
    return found
