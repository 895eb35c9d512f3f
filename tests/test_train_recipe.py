"""The recipe refuses what cannot be meant, and is read back as it was written."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest

from tolerant.train import Recipe


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "epochs must be a whole number of at least 1; got 0"),
        ({"batch_size": 1}, "batch_size must be a whole number of at least 2; got 1"),
        ({"batch_size": 12.5}, "batch_size must be a whole number"),
        ({"lr": 0.0}, "lr must be a finite number above 0; got 0.0"),
        ({"lr": float("nan")}, "lr must be a finite number above 0; got nan"),
        ({"momentum": 1.0}, r"momentum must be in \[0, 1\); got 1.0"),
        ({"weight_decay": -1e-4}, "weight_decay must be a finite number of at least 0"),
        ({"lr_step_decay": -1e-4}, "lr_step_decay must be a finite number of at least 0"),
        ({"milestones": (80, 40)}, "milestones must be rising"),
        ({"milestones": (0, 40)}, "milestones must be rising epochs, 1 or more"),
        ({"optimizer": "sdg"}, "optimizer must be one of sgd, adam; got 'sdg'"),
        ({"augment": "flips"}, "augment must be one of flip-crop, flip, crop, strong, none"),
        ({"precision": "fp16"}, "precision must be one of auto, fp32, bf16"),
        ({"validation_fraction": 0.0}, "Use select='last'"),
        ({"batch_norm_momentum": 0.0}, "None leaves the model's own"),
        ({"batch_norm_momentum": "low"}, "None leaves the model's own"),
        ({"lr": "high"}, "lr must be a finite number above 0; got 'high'"),
        ({"lr": float("inf")}, "lr must be a finite number above 0; got inf"),
        ({"momentum": None}, "momentum must be in \\[0, 1\\); got None"),
        ({"weight_decay": True}, "weight_decay must be a finite number of at least 0; got True"),
        ({"epochs": True}, "epochs must be a whole number"),
        ({"compile": 3}, "compile must be true or false; got 3"),
        ({"milestones": 5}, r"milestones must be whole numbers, as in \(40, 80\); got 5"),
        ({"test_every": 2}, "test_every must be 1 where validation rows choose .* Use select='last'"),
        ({"milestones": (1.5,)}, "milestones must be whole numbers"),
    ],
)
def test_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Recipe(**changes)


def test_survives_json():
    recipe = Recipe(milestones=[3, 5], seed=7, batch_norm_momentum=0.01)
    assert Recipe.from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe
    assert hash(recipe) == hash(Recipe.from_dict(recipe.to_dict()))


def test_unknown_key_is_named_with_the_nearest():
    with pytest.raises(ValueError, match=r"unknown recipe key 'bach_size'\. Did you mean 'batch_size'"):
        Recipe.from_dict({"bach_size": 3})


def test_learning_rate_falls_after_the_milestones():
    """ "Divided by 10 after 40 and 80 epochs": epochs 0 to 39 are the first forty."""
    recipe = Recipe()
    assert [recipe.lr_at(e) for e in (0, 39, 40, 79, 80, 119)] == [0.01, 0.01, 1e-3, 1e-3, 1e-4, 1e-4]
    assert Recipe(milestones=(), epochs=3).lr_at(2) == 0.01
    assert Recipe(milestones=(10 * n for n in (1, 2))).milestones == (10, 20)  # type: ignore[arg-type]


def test_numbers_of_numpy_are_taken_and_can_be_stored():
    recipe = Recipe(epochs=np.int64(3), batch_size=np.int32(8), lr=np.float32(0.5))
    assert recipe == Recipe(epochs=3, batch_size=8, lr=0.5)
    assert json.loads(json.dumps(asdict(recipe)))["lr"] == 0.5
