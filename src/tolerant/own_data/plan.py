"""How to train on rows that nobody has tuned for: the recipe is chosen by their kind and number.

Found on digits, Fashion-MNIST, TREC questions and tables with 20 to 51 % wrong labels:

- Adam forgives data of any scale.
- One wide hidden layer memorises wrong labels later than two.
- The learning rate falls and pruning starts after a third of the epochs, as in the paper.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data.network import NETWORK, PRETRAINED, choose_network, has_photographs
from tolerant.own_data.settings import TRUNCATED, Settings
from tolerant.theory.exponent import choose_q
from tolerant.train.engine.job import Job
from tolerant.train.engine.recipe import Recipe
from tolerant.train.rounds.guards import MOSTLY_RIGHT
from tolerant.train.rounds.schedule import PruneSchedule

_STEPS = 1600  # updates after which small networks have learnt what they can from a few thousand rows
# Of a pretrained network: so many pictures are seen in all, each at least and at most so often.
_TUNED_ON, _LEAST_EPOCHS_OF_TUNING, _MOST_EPOCHS_OF_TUNING = 12_000, 4, 12
_FEATURES_LEFT_OUT = 0.5  # of pretrained ones, at random in each step
# With fewer rows a tenth held out chooses by chance: many epochs tie, the first of them hardly trained.
_LEAST_TO_VALIDATE = 200
_FEW_PHOTOGRAPHS = 5000
LEAST_TO_PRUNE = 50  # with fewer, what a model doubts is no evidence yet
LEAST_EPOCHS_TO_PRUNE = 3  # it starts after a third of them


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
    recipe = _recipe(dataset, settings)
    third = max(1, recipe.epochs // 3)
    truncated = settings.loss == TRUNCATED
    enough = len(dataset) >= LEAST_TO_PRUNE and recipe.epochs >= LEAST_EPOCHS_TO_PRUNE
    q = _default_q(dataset) if settings.q == "auto" else settings.q
    model, model_args = choose_network(dataset, settings, device)
    return Job(
        dataset=dataset,
        model=model,
        model_args=model_args,
        loss="lq" if truncated else settings.loss,
        loss_args={"q": q} if settings.loss in ("lq", TRUNCATED) else {},
        recipe=recipe,
        prune=PruneSchedule(third, max(1, recipe.epochs // 12), k) if truncated and enough else None,
        guards=MOSTLY_RIGHT,
        sample_weight=sample_weight,
        name=name,
    )


def _default_q(dataset: NoisyDataset) -> float:
    """`choose_q`; at most 0.3 for few photographs.

    To a network that starts from nothing all their rows are hard, and L_q learns hard rows slowly. 2,000 rows
    of CIFAR-10, 40 % noise, 30 epochs, mean accuracy of nine seeds (50 to 55, and 20 to 22, where 0.7 was the
    default; pictures_cpu.jsonl) with q = 0.3, with 0.7, and with cross entropy:
    class-dependent noise 43.7, 41.4 and 44.4 %; uniform noise 44.7, 44.5 and 44.0 %.
    """
    q = choose_q(dataset.num_classes)
    few = has_photographs(dataset) and len(dataset) < _FEW_PHOTOGRAPHS
    return min(q, 0.3) if few else q


def _recipe(dataset: NoisyDataset, settings: Settings) -> Recipe:
    recipe = _recipe_from_scratch(dataset, settings)
    return _recipe_of_tuning(recipe, dataset, settings) if settings.model == PRETRAINED else recipe


def _recipe_of_tuning(recipe: Recipe, dataset: NoisyDataset, settings: Settings) -> Recipe:
    """A pretrained network scales its inputs itself, and has learnt most of what it needs."""
    num_rows, batch_size = len(dataset), settings.batch_size or min(32, len(dataset))
    wanted = round(_TUNED_ON / num_rows)
    epochs = settings.epochs or min(max(wanted, _LEAST_EPOCHS_OF_TUNING), _MOST_EPOCHS_OF_TUNING)
    steps = max(1, num_rows // batch_size)
    return replace(
        recipe,
        epochs=epochs,
        batch_size=batch_size,
        lr=settings.lr or 3e-4,
        weight_decay=0.0,
        schedule="cosine",
        warm_up=0.1,
        milestones=(),
        mixup=1.0,
        average=1 - 1 / (steps + 1),  # over an epoch
        augment="flip-crop",
        mirror=True,
        center="none",
        scale="unit",
        validation_fraction=0.0,
        select="last",
    )


def _recipe_from_scratch(dataset: NoisyDataset, settings: Settings) -> Recipe:
    num_rows = len(dataset)
    fraction = settings.validation_fraction if num_rows >= _LEAST_TO_VALIDATE else 0.0
    fraction = 0.0 if settings.pretrained else fraction  # a linear model of half the features learns no rows
    num_trained = num_rows - round(num_rows * fraction)
    pictures, photographs = dataset.kind == "image", has_photographs(dataset)
    # 32 rows a batch for a thousand rows, 128 from ten thousand on.
    wanted = settings.batch_size or min(max(8, 2 ** round(math.log2(num_trained / 40 + 1))), 128)
    batch_size = max(2, min(wanted, num_trained))
    few, many = 15, (60 if pictures else 200)
    # Sparse rows are told apart by single words, pretrained features by a plane.
    steps = _STEPS // 3 if settings.pretrained else _STEPS if settings.standardise else _STEPS // 2
    epochs = settings.epochs or min(max(few, round(steps * batch_size / num_trained)), many)
    third = max(1, epochs // 3)
    return Recipe(
        epochs=epochs,
        batch_size=batch_size,
        optimizer="adam",
        lr=settings.lr or (2e-3 if pictures else 1e-3),
        weight_decay=settings.weight_decay,
        milestones=(third, 2 * third) if epochs >= 3 else (),
        augment="flip-crop" if photographs else "none",  # a mirrored letter is another one
        mirror=photographs,
        center="pixel" if settings.standardise else "none",
        scale="auto" if settings.standardise else "unit",
        dropout=_FEATURES_LEFT_OUT if settings.pretrained and settings.model in ("auto", NETWORK) else 0.0,
        precision=settings.precision,
        validation_fraction=fraction,
        select="validation" if fraction else "last",
        score_every=0,
        seed=settings.seed,
    )
