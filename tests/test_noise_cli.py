"""`tolerant noise`: the files it writes are those of the library, and a mistake costs one sentence."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from tolerant.cli.noise import Kind, noise
from tolerant.data import Source, load
from tolerant.noise import KINDS, Manifest, corrupt, instance_dependent, uniform
from tolerant.own_data.corrected_rows import CorrectedRows

app = typer.Typer()
app.command()(noise)


def test_every_kind_that_is_drawn_can_be_asked_for() -> None:
    assert set(Kind) == KINDS.keys() - {"none", "human"}


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def read_csv(path: Path) -> dict[str, np.ndarray]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def test_csv_and_manifest(tmp_path: Path) -> None:
    out = tmp_path / "new" / "noisy.csv"
    result = run("digits", "--rate", 0.4, "--seed", 7, "--out", out)
    assert result.exit_code == 0, result.output
    data = load("digits")
    expected = corrupt(data.true_labels, uniform(10, 0.4), seed=7, kind="uniform", rate=0.4)
    written = read_csv(out)
    assert list(written) == ["id", "given_label", "true_label"]
    assert np.array_equal(written["id"].astype(int), data.ids)
    assert np.array_equal(written["given_label"].astype(int), expected.given_labels)
    assert np.array_equal(written["true_label"].astype(int), data.true_labels)
    manifest = Manifest.load(out.with_suffix(".manifest.json"))
    assert manifest == expected.manifest
    manifest.verify(written["given_label"].astype(int))
    assert f"{expected.flipped.sum()} wrong" in result.output


def test_npz_of_instance_noise(tmp_path: Path) -> None:
    out = tmp_path / "noisy.npz"
    result = run("digits", "--kind", "instance", "--rate", 0.3, "--split", "test", "--out", out)
    assert result.exit_code == 0, result.output
    data = load("digits", split="test")
    expected = instance_dependent(data.inputs, data.true_labels, 0.3, num_classes=10, seed=0)
    with np.load(out, allow_pickle=False) as arrays:
        assert set(arrays) == {"ids", "given_labels", "true_labels", "class_names"}
        assert np.array_equal(arrays["given_labels"], expected.given_labels)
        assert arrays["class_names"].tolist() == list(data.class_names)
    assert Manifest.load(tmp_path / "noisy.manifest.json") == expected.manifest


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "pets.csv"
    rows = [f"{i % 7},{'cat' if i % 2 else 'dog'},pet {i}" for i in range(200)]
    path.write_text("\n".join(["weight,animal,name", *rows]) + "\n")
    return path


def test_own_table_with_named_pairs(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "noisy.csv"
    options = ("--kind", "pair", "--pair", "cat=dog", "--rate", 1, "--label", "animal")
    result = run(table, *options, "--id", "name", "--out", out)
    assert result.exit_code == 0, result.output
    written = read_csv(out)
    assert written["id"][3] == "pet 3"
    assert set(written["given_label"]) == {"dog"}  # every cat became a dog
    assert np.array_equal(written["true_label"] == "cat", np.arange(200) % 2)
    npz = tmp_path / "noisy.npz"
    assert run(table, *options, "--id", "name", "--out", npz).exit_code == 0
    assert np.load(npz, allow_pickle=False)["ids"][3] == "pet 3"


def test_what_a_refused_source_is_told_to_pass_can_be_passed(tmp_path: Path) -> None:
    rows = "size,n,text,label\n" + "inf,1,red car,a\n1,1,blue car,b\n" * 20 + "1,2,green car,\n"
    (tmp_path / "rows.csv").write_text(rows)
    for options in (("--ignore", "size", "--ignore", "text"), ("--ignore", "size", "--text", "text")):
        command = (tmp_path / "rows.csv", "--rate", 0.5, "--out", tmp_path / "noisy.csv", *options)
        assert "--skip-unlabelled" in str(run(*command).exception)
        with pytest.warns(UserWarning, match="1 of 41 rows have no 'label'"):
            result = run(*command, "--skip-unlabelled")
        assert "40 labels of 2 classes" in result.output


def test_own_matrix(tmp_path: Path, table: Path) -> None:
    matrix = tmp_path / "T.csv"
    matrix.write_text("0.5,0.5\n0,1\n")
    out = tmp_path / "noisy.csv"
    options = (table, "--label", "animal", "--id", "name", "--kind", "matrix", "--out", out)
    assert run(*options, "--matrix", matrix).exit_code == 0
    assert Manifest.load(tmp_path / "noisy.manifest.json").rate is None
    given, true = (read_csv(out)[name] for name in ("given_label", "true_label"))
    assert set(given[true == "dog"]) == {"dog"}
    assert set(given[true == "cat"]) == {"cat", "dog"}
    for text, message in (
        ("a,b\n", "not a CSV file of numbers"),
        ("", "not a CSV file of numbers"),
        ("1,0\n", "square"),
    ):
        matrix.write_text(text)
        result = run(*options, "--matrix", matrix)
        assert isinstance(result.exception, ValueError)
        assert message in str(result.exception)


def test_open_set(tmp_path: Path) -> None:
    out = tmp_path / "noisy.csv"
    options = ("digits", "--kind", "open-set", "--rate", 0.4, "--out", out)
    result = run(*options, "--outside", "digits")
    assert result.exit_code == 0, result.output
    written = {name: column.astype(int) for name, column in read_csv(out).items()}
    replaced = written["source"] >= 0
    assert 0.3 < replaced.mean() < 0.5
    assert np.array_equal(written["true_label"] == -1, replaced)
    Manifest.load(tmp_path / "noisy.manifest.json").verify(written["source"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["digits"], "--rate: kind uniform needs it"),
        (["digits", "--rate", "0.4", "--kind", "pair"], "--pair: kind pair needs it"),
        (["digits", "--rate", "0.4", "--pair", "a=b"], "--pair: kind uniform does not take it"),
        (["digits", "--rate", "0.4", "--kind", "open-set"], "--outside: kind open-set needs it"),
        (["digits", "--rate", "0.4", "--kind", "matrix"], "--rate: kind matrix does not take it"),
        (["digits", "--kind", "matrix"], "--matrix: kind matrix needs it"),
        (["digits", "--rate", "0.4", "--out", "x.txt"], "must end in .csv or .npz; got x.txt"),
        (["digits", "--rate", "0.4", "--kind", "pair", "--pair", "1"], "must be TRUE=GIVEN; got"),
        (["digits", "--rate", "40"], "Did you mean 0.4"),
        (["digits", "--rate", "0.4", "--kind", "cats"], "--kind"),
        (["digits", "--rate", "0.4", "--kind", "class-map"], "classes of neither"),
        (["digits", "--rate", "0.4", "--seed", "-1"], "Invalid value for '--seed'"),
        (["no-such-data", "--rate", "0.4"], "no-such-data"),
    ],
)
def test_mistakes(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*arguments)
    said = result.output if isinstance(result.exception, SystemExit) else str(result.exception)
    said = " ".join(said.replace("│", " ").split())  # the frame around it breaks lines
    assert result.exit_code != 0
    assert message in said
    assert not list(tmp_path.iterdir())


def test_ids_are_those_that_a_training_recognises(tmp_path: Path) -> None:
    rows = [f"case-{number},{number % 7},{'ab'[number % 2]}" for number in range(100)]
    (tmp_path / "cases.csv").write_text("\n".join(["case,measure,label", *rows]))
    result = run(tmp_path / "cases.csv", "--rate", 0.4, "--out", tmp_path / "noisy.csv")
    assert "Column 'case' names the rows" in result.output
    written = read_csv(tmp_path / "noisy.csv")
    source = Source(str(tmp_path / "cases.csv")).with_roles(lambda line: None)  # as `tolerant train` does
    data = CorrectedRows.read(source, [tmp_path / "noisy.csv"])
    names = np.array(data.dataset.class_names)
    assert data.dataset.ids.tolist() == written["id"].tolist()
    assert names[data.corrected.given_labels].tolist() == written["given_label"].tolist()
