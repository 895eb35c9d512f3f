"""A method is a list of rounds: what each trains, and what it may change about the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tolerant.checks import check_whole, unwrap_numbers
from tolerant.train.engine.recipe import Augment, Recipe, check_keys
from tolerant.train.rounds.relabel import Relabel
from tolerant.train.rounds.schedule import PruneSchedule


@dataclass(frozen=True, kw_only=True)
class Round:
    """One training of a method; the next begins with what its model says of every row.

    Cross entropy is one round, the paper's truncated L_q one with ``prune``. What a round leaves at None is
    the recipe's.

    >>> cce = (Round(epochs=120),)
    >>> truncated = (Round(epochs=120, loss="lq", prune=PruneSchedule(40, 10, k=0.5)),)
    >>> taught = (Round(epochs=24, loss="lq"), Round(epochs=100, mixup=1.0, relabel=Relabel(start_epoch=100)))
    """

    epochs: int
    loss: str = "cce"
    loss_args: Mapping[str, Any] | tuple[tuple[str, Any], ...] = ()
    prune: PruneSchedule | None = None
    relabel: Relabel | None = None
    """Rows train under the label that the model believes; in the first round not before `start_epoch`."""
    mixup: float | None = None
    augment: Augment | None = None
    average: float | None = None
    networks: int = 1
    """So many learn side by side and decide by the mean of their probabilities."""
    fresh: bool = True
    """Whether a new network starts, or the one of the round before goes on."""

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        check_whole(self.epochs, "epochs", least=1)
        check_whole(self.networks, "networks", least=1)
        object.__setattr__(self, "loss_args", tuple(sorted(dict(self.loss_args).items())))
        if self.prune is not None and self.relabel is not None:
            raise ValueError(
                "a round has prune or relabel, not both: relabelling leaves out by itself the rows that the "
                "model is not sure of. Use two rounds."
            )

    def recipe(self, of_all: Recipe) -> Recipe:
        """How this round trains, where ``of_all`` is the recipe of all rounds."""
        changes = {name: getattr(self, name) for name in ("mixup", "augment", "average")}
        set_here = {name: value for name, value in changes.items() if value is not None}
        return replace(of_all, epochs=self.epochs, **set_here)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; `from_dict` reads them back."""
        return {**asdict(self), "loss_args": dict(self.loss_args)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Round:
        """Build from plain values; an unknown key is named with the nearest known one."""
        check_keys("round", values, cls)
        values = dict(values)
        for name, of in (("prune", PruneSchedule), ("relabel", Relabel)):
            if values.get(name) is not None:
                check_keys(name, values[name], of)
                values[name] = of(**values[name])
        return cls(**values)


def check_rounds(rounds: Sequence[Round], recipe: Recipe) -> None:
    """Refuse what cannot run, before the first epoch."""
    if not rounds:
        raise ValueError("rounds must be at least one Round; got none.")
    for number, each in enumerate(rounds):
        if not isinstance(each, Round):
            raise ValueError(f"rounds must be a list of Round; got {each!r}.")
        where = f"round {number + 1} of {len(rounds)}"
        each.recipe(recipe)  # refuses its own values
        if not each.fresh and number == 0:
            raise ValueError(
                f"{where} has fresh=False, but there is no network before it to go on with. Use fresh=True."
            )
        if not each.fresh and each.networks != rounds[number - 1].networks:
            raise ValueError(
                f"{where} goes on with the network of the round before (fresh=False), so networks must be "
                f"the same; got {each.networks} after {rounds[number - 1].networks}."
            )
        if each.relabel is not None and number == 0 and each.relabel.start_epoch == 0:
            raise ValueError(
                f"{where} relabels from epoch 0 on, where the model has seen no label yet. Use a later "
                "start_epoch, or put a round without relabel before it."
            )


def taught(first: int, *later: int, q: float, networks: int = 1) -> tuple[Round, ...]:
    """The package's own method: so many epochs of L_q, then rounds under what the rows' labels seem to be.

    In these rows are blended: a network that sees none of them twice alike cannot learn its own mistakes by
    heart. What a row trains under is decided once, before the round, by what the one before says at its end.

    A network that goes on deciding judges what it has taught itself. It is surest of rows that it has learnt,
    under their given label most of them, so that the counted T trusts labels too far; then fewer rows are
    sure under another label, fewer of these train, and so on. With uniform noise of 0.8 the share of rows
    that trained fell so from 81 to 33 % in one decision, that of other labels from 55 to 8. With uniform
    noise of 0.7 the test accuracy is 91.4 % where the network before decides alone, and 90.7 where both do
    (one seed; results/rounds-before.jsonl, results/bench/rounds).
    """
    rounds = [Round(epochs=first, loss="lq", loss_args={"q": q})]
    for epochs in later:
        relabel = Relabel(start_epoch=epochs)  # after its last one: never within it
        rounds.append(Round(epochs=epochs, mixup=1.0, networks=networks, relabel=relabel))
    return tuple(rounds)
