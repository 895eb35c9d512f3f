"""Losses, readers and extractors that another installed package adds."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tolerant import data, plugins
from tolerant.data.features import load_extractor
from tolerant.losses.registry import loss_class, make_loss

CODE = """
import dataclasses
import numpy as np
import torch
from tolerant import PhiLoss
from tolerant.data import NoisyDataset
from tolerant.data.features.bundled import Card
from tolerant.data.features.extractor import Extractor, Identity
from tolerant.data.encoders.inputs import Unlabelled
from tolerant.data.source import Reader


class Poly1Loss(PhiLoss):
    def __init__(self, *, epsilon: float = 1.0, **common) -> None:
        super().__init__(**common)

    def phi(self, log_p_y):
        return -log_p_y - self.epsilon * torch.expm1(log_p_y)

    def weight(self, log_p_y):
        return 1 + self.epsilon * torch.exp(log_p_y)


def load_dots(path, *, sides: int = 2):
    rows = np.loadtxt(path, dtype=np.float32)
    return NoisyDataset(rows[:, :-1], rows[:, -1].astype(np.int64), None, tuple(map(str, range(sides))))


def read_dots(path, encoder):
    return Unlabelled(np.loadtxt(path, dtype=np.float32)[:, :-1], None, "table")


READER = Reader(load_dots, read_dots)


def load(card, device):
    encode = lambda rows: torch.from_numpy(rows.reshape(len(rows), 1, -1)[:, :, :4].astype(np.float32))
    return Extractor(Identity(card.name, "1", "w", "u"), "image", encode, 1, 32)


CARD = Card("corner", "image", "four pixels", "MIT", "none", (), "", load, 4)
A_NUMBER = 3
"""
POINTS = """
[tolerant.losses]
poly1 = theirs:Poly1Loss
gone = theirs:NoSuchThing
number = theirs:A_NUMBER
lq = theirs:A_NUMBER
ends = ends_at_once:Loss

[tolerant.readers]
dots = theirs:READER
csv = theirs:READER

[tolerant.extractors]
corner = theirs:CARD
"""


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A package as pip leaves it."""
    (tmp_path / "theirs.py").write_text(CODE)
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("theirs", None)


def test_a_loss() -> None:
    assert "poly1" in plugins.names("tolerant.losses")
    assert "theirs" not in sys.modules  # nothing is imported before it is asked for
    loss = make_loss("poly1", epsilon=2.0)
    value = loss(torch.tensor([[0.0, 0.0]]), torch.tensor([0]))
    assert value.item() == pytest.approx(np.log(2) + 2 * 0.5)
    assert loss_class("poly1").defaults == {"epsilon": 1.0}


def test_a_reader(tmp_path: Path) -> None:
    rows = np.array([[0.0, 1.0, 0], [1.0, 0.5, 1], [2.0, 0.1, 1]], np.float32)
    np.savetxt(tmp_path / "rows.dots", rows)
    loaded = data.load(tmp_path / "rows.dots")
    assert loaded.given_labels.tolist() == [0, 1, 1]
    assert data.load(tmp_path / "rows.dots", sides=3).num_classes == 3
    with pytest.raises(ValueError, match="takes no option 'label'; it takes sides"):
        data.load(tmp_path / "rows.dots", label="x")
    encoder = data.InputEncoder.fit(loaded)
    assert data.Source(str(tmp_path / "rows.dots")).read(encoder).inputs.shape == (3, 2)
    (tmp_path / "rows.csv").write_text("a,label\n1,x\n2,y\n3,x\n4,y\n")
    assert data.load(tmp_path / "rows.csv").class_names == ("x", "y")  # ours cannot be taken


def test_an_extractor() -> None:
    features = load_extractor("corner", "image")(np.ones((2, 3, 3, 1), np.uint8))
    assert features.shape == (2, 1, 4)


def test_a_broken_one_is_named_and_left_out(tmp_path: Path) -> None:
    with (
        pytest.warns(UserWarning, match=r"'gone' of theirs \(tolerant.losses\) is left out: AttributeError"),
        pytest.raises(ValueError, match="loss must be one of"),
    ):
        make_loss("gone")
    with (
        pytest.warns(UserWarning, match="it must be a RobustLoss; got 3"),
        pytest.raises(ValueError, match=r"loss must be one of .*poly1"),
    ):
        make_loss("number")
    (tmp_path / "ends_at_once.py").write_text("import sys; sys.exit(0)")
    with (
        pytest.warns(UserWarning, match=r"'ends' of theirs .* is left out: SystemExit"),
        pytest.raises(ValueError, match="loss must be one of"),
    ):
        make_loss("ends")
    assert type(make_loss("lq")).__module__ == "tolerant.losses.phi"


def test_groups_are_those_that_are_read() -> None:
    assert {point.group for point in metadata.distribution("theirs").entry_points} == set(plugins.GROUPS)
