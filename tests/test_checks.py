"""Numbers and labels that people pass in: what counts as one, and the sentence for what does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tolerant.checks import check_labels, check_rate, check_whole, is_whole
from tolerant.hints import warn_caller


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), torch.tensor(3)])
def test_whole_numbers_of_any_library_become_pythons(value: Any) -> None:
    assert is_whole(value)
    assert type(check_whole(value, "epochs", least=3)) is int


@pytest.mark.parametrize("value", [True, 3.0, "3", None, np.float32(3), [3], 2])
def test_what_only_looks_like_a_whole_number_is_refused(value: Any) -> None:
    with pytest.raises(ValueError) as caught:
        check_whole(value, "epochs", least=3)
    assert str(caught.value) == f"epochs must be a whole number of at least 3; got {value!r}."


def test_a_rate_that_looks_like_per_cent_is_told_so() -> None:
    assert check_rate(np.float32(0.5)) == 0.5
    with pytest.raises(ValueError, match=r"rate must be a number in \[0, 1\]; got 40\. Did you mean 0.4"):
        check_rate(40)


def test_labels_are_copied_as_int64_of_the_wanted_number() -> None:
    given = np.array([0, 2, 1], np.uint8)
    labels = check_labels(given, 3, "labels", num_rows=3)
    assert (labels.dtype, labels.tolist()) == (np.int64, [0, 2, 1])
    assert check_labels([-1, 900], 901, "labels", lowest=-1).tolist() == [-1, 900]
    assert check_labels([], 3, "labels", num_rows=0).tolist() == []
    same = check_labels(labels, 3, "labels")
    same[0] = 1
    assert labels[0] == 0


@pytest.mark.parametrize(
    ("labels", "options", "message"),
    [
        ([], {}, r"labels must be a vector of at least one label; got shape \(0,\)"),
        ([0, 1], {"num_rows": 3}, r"vector of 3 labels, one for each row; got shape \(2,\)"),
        ([[0, 1, 1]], {"num_rows": 3}, r"got shape \(1, 3\)"),
        (["a", "b"], {}, "whole class numbers; got dtype <U1. Number the classes first"),
        ([0, 3, 4], {}, r"in 0 to 2 for 3 classes; got 3 in row 1 \(2 such rows\)\.$"),
        ([0, -1], {}, r"got -1 in row 1 \(1 such rows\)\.$"),
        ([0, -2], {"lowest": -1}, "in -1 to 2 for 3 classes; got -2"),
    ],
)
def test_labels_that_are_none(labels: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_labels(labels, **{"num_classes": 3, "name": "labels", **options})


def test_a_warning_points_at_the_line_that_called_the_package() -> None:
    """However many frames of the package lie between."""
    package: dict[str, Any] = {"__name__": "tolerant.made_up", "warn_caller": warn_caller}
    code = "def call(depth):\n    call(depth - 1) if depth else warn_caller('look here')\n"
    exec(compile(code, "made_up.py", "exec"), package)
    for depth in (0, 4):
        with pytest.warns(UserWarning, match="look here") as caught:
            package["call"](depth)
        assert caught[0].filename == __file__
