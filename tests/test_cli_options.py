"""An option that means nothing beside the others is refused by its name, with the way out, not ignored."""

from __future__ import annotations

import inspect
import re
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import typer
from PIL import Image
from train_helpers import pictures, table
from typer.testing import CliRunner

from tolerant import NoisyLabelClassifier
from tolerant.cli import make_app
from tolerant.cli.doctor import EXTRAS
from tolerant.cli.train import train
from tolerant.data import downloads
from tolerant.experiment import named_grid, run
from tolerant.own_data import Settings
from tolerant.train.engine.recipe import Precision

ROOT = Path(__file__).parents[1]


def refusal(*arguments: Any) -> str:
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert result.exit_code != 0, result.output
    said = result.output if isinstance(result.exception, SystemExit) else str(result.exception)
    return " ".join(said.replace("│", " ").split())  # the frame around it breaks lines


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows of every kind, and a run of each kind of model."""
    folder = tmp_path_factory.mktemp("kinds")
    rows = table(60, noise_rate=0.1)
    np.savez(folder / "rows.npz", inputs=rows.inputs, labels=rows.given_labels, class_names=list("abcd"))
    lines = [
        f"{a:.3f},{'sun moon' if label % 2 else 'rain wind'},{'xy'[label % 2]}"
        for a, label in zip(rows.inputs[:, 0], rows.given_labels, strict=True)
    ]
    (folder / "rows.csv").write_text("\n".join(["a,words,label", *lines]) + "\n")
    for row, pixels in enumerate(pictures(8).inputs):
        (folder / "photos" / "xy"[row % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(folder / "photos" / "xy"[row % 2] / f"{row}.png")
    (folder / "list.csv").write_text("file,n,label\nphotos/x/0.png,1,x\nphotos/y/1.png,2,y\n" * 2)
    for name, data, options in (
        ("table", "rows.csv", ("--ignore", "words")),
        ("text", "rows.csv", ("--text", "words")),
        ("image", "photos", ("--model", "mlp")),
        ("array", "rows.npz", ()),
    ):
        command = ["train", folder / data, *options, "--epochs", 1, "--folds", 0, "--out", folder / name]
        done = CliRunner().invoke(make_app(), [str(word) for word in command])
        assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("reproduce digits --gpus 0", "--gpus: is for a Ray cluster; add --engine ray, or use --fleet"),
        ("reproduce digits --cpus 1", "--cpus: is for a Ray cluster"),
        ("reproduce digits --address 10.0.0.1:6379 --dry-run", "--address: is for a Ray cluster"),
        ("reproduce digits --engine ray --fleet 1", "--fleet: is for the local engine; with ray use --cpus"),
        ("reproduce digits --engine ray --workers 2", "--workers: is for the local engine"),
        ("reproduce digits --fleet 2 --workers 2", "--workers: puts one run into each process"),
        ("reproduce digits --epochs 3 --change epochs=2", "'epochs' one value (--epochs N is --change"),
        ("reproduce digits --change lr=1 --change lr=2", "--change must give 'lr' one value; got 1 and 2"),
        ("reproduce digits --loss cce,mae --change q=0.5", "--change q=... is for L_q, which none of these"),
        ("reproduce digits --loss lq --change k=0.5", "--change k=... is for pruning, and none of these"),
        ("reproduce theory --seeds 1", "--seeds: theory has no options"),
        ("reproduce theory --dry-run", "--dry-run: theory has no options"),
        ("report table1 --docs README.md", "NAME: --docs writes every block"),
        ("report --docs README.md --out reports", "--out: --docs writes every block"),
        ("report --docs README.md --changed all", "--changed: --docs writes every block"),
        ("train digits --loss cce --q 0.5", "--q: is for lq and truncated-lq; it means nothing to"),
        ("train digits --loss agce --q auto", "--q: is for lq and truncated-lq"),
        ("train digits --loss lq --k 0.5", "--k: is for truncated-lq, which prunes; --loss lq does not"),
        ("train digits --epochs 2 --k 0.4", "--k: is for pruning, starting after a third of the epochs"),
        ("train digits --k auto --folds 0", "--k: auto is estimated from the folds; give a number"),
        ("train digits --k often", "--k: must be a number or auto; got 'often'"),
        ("train digits --seed -1", "Invalid value for '--seed'"),
        ("train digits --seed 4294967296", "seed must be below 2**32"),
        ("audit digits --seed -1", "Invalid value for '--seed'"),
        ("noise digits --seed -1", "Invalid value for '--seed'"),
        ("demo --seed -1", "Invalid value for '--seed'"),
        ("train digits --folds 1", "'--folds': must be 0 or at least 2"),
        ("audit digits --folds 1", "'--folds': must be 0 or at least 2"),
        (
            "train digits --root x",
            "--root: is the folder of the published data sets (cifar10 ...), and digits",
        ),
        ("audit rows.csv --root x", "rows.csv is not one"),
        ("noise rows.csv --rate 0.1 --root x", "rows.csv is not one"),
        ("noise digits --kind open-set --outside rows.csv --rate 0.1 --root x", "digits is not one"),
        ("noise digits --kind pair --rate 0.1 --pair 1=2 --pair 1=3", "pairs must send each class to one"),
        ("train rows.csv --text words --categorical words", "both name 'words'; leave one of them out"),
        ("train rows.csv --ignore label", "ignore (--ignore) names 'label', the column of labels"),
        ("train rows.npz --min-per-class 1", "an array class_names, and those classes may have any number"),
        ("audit table --labels x.csv", "--labels: is for data; train the run again with it"),
        ("audit table --label words", "--label: is for data; a run knows how its data was read"),
        ("audit table --folds 5", "--folds: is for data, which is trained on; a run has its predictions"),
        ("audit table --seed 0", "--seed: is for data, which is trained on"),
        ("audit table --device auto", "--device: is for data, which is trained on"),
        ("audit table --root x", "--root: is for data; a run knows how its data was read"),
        ("audit table --skip-unlabelled", "--skip-unlabelled: is for data; a run knows"),
        ("predict table rows.csv --split test", "rows.csv takes no option 'split' for rows of this run"),
        (
            "predict table rows.csv --text words",
            "names 'words', and the model was trained on a table without",
        ),
        (
            "predict table rows.csv --file words",
            "takes no option 'file' for rows of this run; it takes text, id",
        ),
        ("predict table rows.csv --label a", "No such option: --label"),
        ("predict table rows.csv --root x", "--root: is the folder of the published data sets"),
        ("predict text rows.csv --file words", "takes no option 'file' for rows of this run; it takes text"),
        ("predict image photos --id a", "photos takes no option 'id' for rows of this run; it takes split"),
        ("predict image photos --file a", "photos takes no option 'file'"),
        (
            "predict image list.csv --text n",
            "list.csv takes no option 'text' for rows of this run; it takes file, id",
        ),
        ("predict image digits --file a", "digits takes no option 'file'"),
        (
            "predict array rows.npz --id a",
            "rows.npz takes no option 'id' for rows of this run; it takes none",
        ),
        ("predict array rows.npz --split a", "rows.npz takes no option 'split'"),
    ],
)
def test_an_option_without_a_meaning_is_refused(
    command: str, said: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.rglob("*"))
    assert said in refusal(*command.split())
    assert sorted(folder.rglob("*")) == before, "refused before anything is written"


def test_the_root_of_another_source_is_let_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    kind = ("--kind", "open-set", "--outside", "cifar10", "--rate", 0.1)
    assert "CIFAR-10 is not in nowhere" in refusal("noise", "photos", *kind, "--root", "nowhere")


def test_runs_happen_in_one_place(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="fleet, workers and cluster exclude each other"):
        run(named_grid("digits"), results=tmp_path, checkpoints=tmp_path, fleet=2, workers=2)
    assert not list(tmp_path.iterdir())


def defaults_of(function: Any) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def test_the_estimator_repeats_the_defaults_of_the_command() -> None:
    """Its signature is what people read, so it spells them out."""
    said, command = defaults_of(NoisyLabelClassifier), defaults_of(train)
    settings = {each.name: each.default for each in fields(Settings) if each.name in said}
    assert len(settings) > 8
    assert {name: said[name] for name in settings} == settings
    for name in ("folds", "device"):
        assert said[name] == command[name]


def test_lists_of_words_are_those_of_the_package() -> None:
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["app"]
    assert {*EXTRAS, "typer"} == {re.split("[>=]", name)[0] for name in needed}  # typer shows the list
    commands = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    for command, option, words in (
        ("train", "precision", {*get_args(Precision)}),
        ("download", "names", {*downloads(), "all"}),
    ):
        (text,) = (param.help for param in commands[command].params if param.name == option)
        assert {*re.findall(r"[a-z][a-z0-9-]+", text)} >= words, command


def test_every_option_says_what_it_is_for() -> None:
    commands = typer.main.get_command(make_app()).commands  # type: ignore[attr-defined]
    params = [(name, param) for name, command in commands.items() for param in command.params]
    assert [f"{name} {param.name}" for name, param in params if not param.help] == []
