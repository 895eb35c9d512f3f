"""How to train on rows that nobody has tuned for: model and recipe are chosen by their kind and number.

Found on digits, Fashion-MNIST, TREC questions and tables with 20 to 51 % wrong labels: Adam forgives
data of any scale; one wide hidden layer memorises wrong labels later than two; the learning rate falls
and pruning starts after a third of the epochs, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from tolerant.data.dataset import NoisyDataset
from tolerant.theory.bounds import sum_bounds
from tolerant.train.engine.job import Job
from tolerant.train.engine.numpy_numbers import unwrap_numbers
from tolerant.train.engine.recipe import Augment, Precision, Recipe
from tolerant.train.engine.seeding import seeded
from tolerant.train.rounds.pruner import PruneSchedule

TRUNCATED = "truncated-lq"
ModelFactory = Callable[[tuple[int, ...], int], nn.Module]

_STEPS = 1600  # updates after which small networks have learnt what they can from a few thousand rows
# With fewer rows a tenth held out chooses by chance: many epochs tie, the first of them hardly trained.
_LEAST_TO_VALIDATE = 200
LEAST_TO_PRUNE = 50  # with fewer, what a model doubts is no evidence yet
LEAST_EPOCHS_TO_PRUNE = 3  # it starts after a third of them
# Labels are taken to be mostly right: a model that doubts most of them is too weak to judge, and its
# round of pruning is left out. 2,000 rows of CIFAR-10, 40 % noise, q 0.7, means of seeds 20 to 22, with this
# rule, without it, cross entropy: uniform 44.7, 38.9, 43.3 %; class-dependent 41.8, 39.4, 44.9 %
# (results/bench/pictures_cpu.jsonl).
_PRUNE_AT_MOST = 0.5
# The same of a class. A model rightly gives a rare class little of a row's probability where the two overlap;
# pruned, the class is unlearnt. Not a half: where a rare class gets a share of a frequent one's labels by
# mistake, most of what carries its name is wrong.
_PRUNE_CLASS_AT_MOST = 0.75
_FEW_PHOTOGRAPHS = 5000
_CLASSES, _Q = 10, 0.7  # the paper's


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a user may set; what is None or "auto" is chosen by the data."""

    model: str | ModelFactory = "auto"
    model_args: Mapping[str, Any] = field(default_factory=dict)
    loss: str | nn.Module = TRUNCATED
    """A name of the registry. "truncated-lq" trains by the paper's algorithm: L_q, and pruning at k."""
    q: float | Literal["auto"] = "auto"
    """"auto": :func:`choose_q`, by the number of classes; at most 0.3 for a few thousand photographs."""
    k: float | Literal["auto"] = 0.5
    epochs: int | None = None
    batch_size: int | None = None
    lr: float | None = None
    weight_decay: float = 1e-4
    validation_fraction: float = 0.1
    standardise: bool = True
    """Tables: subtract each column's mean and divide by its deviation. Not for sparse rows, which would lose
    their zeros."""
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        unwrap_numbers(self)
        if self.q != "auto" and not (isinstance(self.q, float | int) and 0 <= self.q <= 1):
            raise ValueError(
                f"q must be in [0, 1] or 'auto'; got {self.q!r}. For cross entropy use loss='cce'."
            )
        if self.k != "auto" and not (isinstance(self.k, float | int) and 0 < self.k < 1):
            raise ValueError(f"k must be in (0, 1) or 'auto'; got {self.k!r}.")
        if not isinstance(self.loss, str | nn.Module):
            raise ValueError(f"loss must be a name or a loss such as LqLoss(q=0.7); got {self.loss!r}.")
        for name in ("epochs", "batch_size", "lr"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be above 0, or None to have it chosen; got {value!r}.")


def make_job(
    dataset: NoisyDataset,
    settings: Settings,
    device: torch.device,
    *,
    k: float,
    sample_weight: np.ndarray | None = None,
    name: str = "",
) -> Job:
    """The job that trains ``dataset`` under ``settings``, with what they leave open filled in."""
    num_rows = len(dataset)
    fraction = settings.validation_fraction if num_rows >= _LEAST_TO_VALIDATE else 0.0
    num_trained = num_rows - round(num_rows * fraction)
    pictures = dataset.kind == "image"
    # 32 rows a batch for a thousand rows, 128 from ten thousand on.
    wanted = settings.batch_size or min(max(8, 2 ** round(math.log2(num_trained / 40 + 1))), 128)
    batch_size = max(2, min(wanted, num_trained))
    few, many = 15, (60 if pictures else 200)
    steps = _STEPS if settings.standardise else _STEPS // 2  # sparse rows: told apart by single words
    epochs = settings.epochs or min(max(few, round(steps * batch_size / num_trained)), many)
    third = max(1, epochs // 3)
    recipe = Recipe(
        epochs=epochs,
        batch_size=batch_size,
        optimizer="adam",
        lr=settings.lr or (2e-3 if pictures else 1e-3),
        weight_decay=settings.weight_decay,
        milestones=(third, 2 * third) if epochs >= 3 else (),
        augment=_augment(dataset),
        center="pixel" if settings.standardise else "none",
        scale="auto" if settings.standardise else "unit",
        precision=settings.precision,
        validation_fraction=fraction,
        select="validation" if fraction else "last",
        score_every=0,
        seed=settings.seed,
    )
    enough = num_rows >= LEAST_TO_PRUNE and epochs >= LEAST_EPOCHS_TO_PRUNE
    pruned = settings.loss == TRUNCATED and enough
    q = _auto_q(dataset) if settings.q == "auto" else settings.q
    model = _model(dataset, settings, device)
    hidden = {"hidden": _hidden(dataset)} if settings.model == "auto" and model == "mlp" else {}
    return Job(
        dataset=dataset,
        model=model,
        model_args={**hidden, **settings.model_args},
        loss="lq" if settings.loss == TRUNCATED else settings.loss,
        loss_args={"q": q} if settings.loss in ("lq", TRUNCATED) else {},
        recipe=recipe,
        prune=PruneSchedule(third, max(1, epochs // 12), k) if pruned else None,
        prune_at_most=_PRUNE_AT_MOST,
        prune_class_at_most=_PRUNE_CLASS_AT_MOST,
        sample_weight=sample_weight,
        name=name,
    )


def choose_q(num_classes: int) -> float:
    """The paper's 0.7 for ten classes, less for fewer and for more.

    With fewer classes L_q is as near to symmetric at a smaller q (`same_gap`), which learns hard rows better.
    With more, the same gap would ask for a larger q, but that learns slowly: p_y is 1 / c at first,
    and a row's weight c^-q. So q falls such that this weight stays as with ten classes, but not below 0.5.
    Means over five tables of 20 to 300 classes, three noises and three seeds, of this rule, of 0.7 and of the
    same gap: accuracy 85.3, 84.1, 81.0 %; wrong labels among the most doubtful 92.6, 92.6, 89.8 %
    (results/bench/classes.jsonl).

    >>> [choose_q(num_classes) for num_classes in (2, 3, 6, 10, 15, 100)]
    [0.38, 0.51, 0.64, 0.7, 0.6, 0.5]
    """
    if num_classes <= _CLASSES:
        return same_gap(num_classes)
    return max(0.5, round(_Q * math.log(_CLASSES) / math.log(num_classes), 2))


def same_gap(num_classes: int) -> float:
    """The q at which L_q with this many classes is as near to symmetric as with ten and the paper's 0.7.

    The measure is the gap between the bounds of lemma 2, (c^(1 - q) - 1) / q, 0 for a symmetric loss
    (:func:`tolerant.theory.sum_bounds`). Theorem 1 depends on q through this gap alone, but on the number of
    classes in other ways too: for different numbers of classes equal gaps are not equal bounds.
    """

    def gap(q: np.ndarray | float, num_classes: int) -> np.ndarray:
        lower, upper = sum_bounds(q, num_classes)
        return np.asarray(upper) - np.asarray(lower)

    choices = np.arange(1, 101) / 100
    return float(choices[np.abs(gap(choices, num_classes) - gap(_Q, _CLASSES)).argmin()])


def _auto_q(dataset: NoisyDataset) -> float:
    """`choose_q`; at most 0.3 for photographs too few for a network that starts from nothing.

    All their rows are hard, and L_q learns hard rows slowly. 2,000 rows of CIFAR-10, 40 % noise, 30 epochs,
    means of nine seeds (50 to 55 and 20 to 22, whose default was 0.7, in pictures_cpu.jsonl) at 0.3, at 0.7
    and of cross entropy: class-dependent 43.7, 41.4, 44.4 %; uniform 44.7, 44.5, 44.0 %.
    """
    q = choose_q(dataset.num_classes)
    return min(q, 0.3) if _photographs(dataset) and len(dataset) < _FEW_PHOTOGRAPHS else q


def _model(dataset: NoisyDataset, settings: Settings, device: torch.device) -> str | nn.Module:
    model = settings.model
    shape = tuple(dataset.inputs.shape[1:])
    if isinstance(model, str):
        return _auto_model(dataset, shape, device) if model == "auto" else model
    if not callable(model) or isinstance(model, nn.Module):  # one instance could not start anew in each fold
        raise ValueError(
            "model must be 'auto', a name, or a function (input_shape, num_classes) -> nn.Module; "
            f"got {model!r}."
        )
    if dataset.kind == "image":
        shape = (shape[2], *shape[:2])
    with seeded(settings.seed):
        built = model(shape, dataset.num_classes)
    if not isinstance(built, nn.Module):
        raise ValueError(f"the model function must return an nn.Module; got {type(built).__name__}.")
    return built


def _auto_model(dataset: NoisyDataset, shape: tuple[int, ...], device: torch.device) -> str:
    if dataset.kind != "image" or min(shape[:2]) < 16:
        return "mlp"
    # Grey and small, as digits, letters and Fashion-MNIST: in the same time a dense network learns more.
    # 3,000 rows of it, 20 % wrong, one seed: 73.4 %; the convolutional one, in twelve times the processor
    # time, 68.7 %. In colour it is the other way round: on 2,000 rows of CIFAR-10 33.0 (with pruning) and
    # 43.5 % (without; results/bench/pictures_cpu.jsonl).
    if device.type == "cpu" and shape[2] == 1 and max(shape[:2]) <= 32:
        return "mlp"
    return "resnet18" if device.type == "cuda" and len(dataset) >= 20_000 else "small-cnn"


def _hidden(dataset: NoisyDataset) -> tuple[int, ...]:
    """One layer; narrower where the columns are thousands, and its weights would be millions."""
    return (256,) if np.prod(dataset.inputs.shape[1:]) <= 2048 else (64,)


def _augment(dataset: NoisyDataset) -> Augment:
    """Flips and crops for photographs; a mirrored digit or letter is another one."""
    return "flip-crop" if _photographs(dataset) else "none"


def _photographs(dataset: NoisyDataset) -> bool:
    shape = dataset.inputs.shape
    return dataset.kind == "image" and shape[3] >= 3 and min(shape[1:3]) >= 28
