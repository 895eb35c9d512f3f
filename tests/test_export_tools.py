"""Suspects go to annotation tools and come back as corrections: by their own packages where installed."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from own_data_helpers import AT_ONCE, read, tolerant, write_pictures, write_table, write_texts
from typer.testing import CliRunner

from tolerant.cli import make_app
from tolerant.review import read_corrections


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run of each kind of data."""
    folder = tmp_path_factory.mktemp("runs")
    write_pictures(folder / "pictures")
    write_texts(folder / "texts.csv")
    write_table(folder / "rows.csv")
    quick = ("--model", "linear", "--folds", "2")
    tolerant("train", folder / "pictures", "--out", folder / "image", "--features", "none", *AT_ONCE)
    tolerant("train", folder / "texts.csv", "--out", folder / "text", "--features", "none", "--folds", "2")
    tolerant("train", folder / "rows.csv", "--id", "key", "--out", folder / "table", *quick)
    return {kind: folder / kind for kind in ("image", "text", "table")}


def sources(run: Path) -> tuple[Any, ...]:
    """What `tolerant train` took for this run."""
    data = {"image": "pictures", "text": "texts.csv", "table": "rows.csv"}[run.name]
    return (run.parent / data, *(("--id", "key") if run.name == "table" else ()))


def exported(run: Path, to: str, out: Path) -> Any:
    tolerant("export", run, "--to", to, "--out", out)
    name = {"label-studio": "tasks.json", "argilla": "records.json", "fiftyone": "samples.json"}[to]
    return json.loads((out / name).read_text())


def check_comes_back(run: Path, reviewed: Path, decided: dict[str, str]) -> None:
    """The file holds these decisions, and `--labels` takes it: the rows are those that were exported."""
    assert {c.id: c.new_label for c in read_corrections(reviewed)} == decided
    assert all(c.row_digest and c.given_label for c in read_corrections(reviewed))
    again = reviewed.parent / "again"
    said = tolerant(
        "train", *sources(run), "--labels", reviewed, "--out", again, "--features", "none", *AT_ONCE
    )
    assert f"{len(decided)} reviewed" in said
    assert not set(decided) & {row["id"] for row in read(again / "suspects.csv")}


@pytest.mark.parametrize("kind", ["image", "text", "table"])
@pytest.mark.parametrize("short", [False, True])
def test_label_studio(runs: dict[str, Path], kind: str, short: bool, tmp_path: Path) -> None:
    run = runs[kind]
    tasks = exported(run, "label-studio", tmp_path / "out")
    suspects = read(run / "suspects.csv")
    assert [task["data"]["row_id"] for task in tasks] == [row["id"] for row in suspects]
    scores = [task["predictions"][0]["score"] for task in tasks]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(1 - float(suspects[0]["p_right"]), abs=2e-4)
    done = copy.deepcopy(tasks)
    for number, task in enumerate(done):  # as it exports them; the second was skipped
        task["id"], task["annotations"] = number, []
    first = suspects[0]["suggested_label"]
    result = {**done[0]["predictions"][0]["result"][0], "id": "x", "origin": "manual"}
    done[0]["annotations"] = [{"id": 1, "was_cancelled": False, "result": [result]}] * 2
    done[1]["annotations"] = [{"id": 2, "was_cancelled": True, "result": [result]}]
    if short:
        done = [
            {
                **task["data"],
                "id": task["id"],
                "annotation_id": 7,
                "annotator": 1,
                **({"label": first} if not i else {}),
            }
            for i, task in enumerate(done[:2])
        ]
    (tmp_path / "reviewed.json").write_text(json.dumps(done))
    check_comes_back(run, tmp_path / "reviewed.json", {suspects[0]["id"]: first})


@pytest.mark.parametrize("kind", ["image", "text", "table"])
def test_label_studio_itself_reads_it(runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    sdk = pytest.importorskip("label_studio_sdk.label_interface", reason="needs label-studio-sdk")
    tasks = exported(runs[kind], "label-studio", tmp_path / "out")
    interface = sdk.LabelInterface((tmp_path / "out" / "label_config.xml").read_text())
    interface.validate()  # raises
    for task in tasks:
        assert interface.validate_prediction(task["predictions"][0])
    task["predictions"][0]["result"][0]["value"]["choices"] = ["none of the classes"]
    assert not interface.validate_prediction(task["predictions"][0])


def test_two_people_who_disagree_are_named(runs: dict[str, Path], tmp_path: Path) -> None:
    task = exported(runs["table"], "label-studio", tmp_path / "out")[0]
    result = task["predictions"][0]["result"][0]
    other = {**result, "value": {"choices": [task["data"]["given_label"]]}}
    task["annotations"] = [{"result": [result]}, {"result": [other]}]
    (tmp_path / "reviewed.json").write_text(json.dumps([task]))
    with pytest.raises(ValueError, match=r"was labelled .* and .* by different people"):
        read_corrections(tmp_path / "reviewed.json")
    del task["annotations"][0]["result"][0]["value"]
    (tmp_path / "reviewed.json").write_text(json.dumps([task]))
    with pytest.raises(ValueError, match=r"reviewed.json is not whole: KeyError\('value'\)"):
        read_corrections(tmp_path / "reviewed.json")


@pytest.mark.parametrize("kind", ["image", "text", "table"])
def test_argilla(runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    run = runs[kind]
    records = exported(run, "argilla", tmp_path / "out")
    suspects = read(run / "suspects.csv")
    assert [record["id"] for record in records] == [row["id"] for row in suspects]
    assert records[0]["suggestions"]["label"]["value"] == suspects[0]["suggested_label"]
    records[2]["responses"] = {"label": [{"value": suspects[2]["given_label"], "user_id": "u"}]}
    (tmp_path / "reviewed.json").write_text(json.dumps(records))
    check_comes_back(run, tmp_path / "reviewed.json", {suspects[2]["id"]: suspects[2]["given_label"]})


@pytest.mark.parametrize("kind", ["image", "text"])
def test_argilla_itself_reads_it(
    runs: dict[str, Path], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rg = pytest.importorskip("argilla", reason="needs argilla")
    from unittest import mock

    monkeypatch.setattr(rg.Argilla, "_get_default", lambda *_: mock.MagicMock())
    records = exported(runs[kind], "argilla", tmp_path / "out")
    settings = rg.Settings.from_json(str(tmp_path / "out" / "settings.json"))
    assert [field.name for field in settings.fields] == ["image" if kind == "image" else "text"]
    (question,) = settings.questions
    for given in records:
        record = rg.Record.from_dict(given)
        assert record.suggestions["label"].value in question.labels
        assert record.to_dict()["metadata"] == given["metadata"]


def test_fiftyone(runs: dict[str, Path], tmp_path: Path) -> None:
    run = runs["image"]
    content = exported(run, "fiftyone", tmp_path / "out")
    suspects = read(run / "suspects.csv")
    assert all(Path(sample["filepath"]).is_file() for sample in content["samples"])
    assert {name for sample in content["samples"] for name in sample} == content["sample_fields"].keys()
    content["samples"][0]["label"]["label"] = suspects[0]["suggested_label"]
    content["samples"][1]["tags"].append("reviewed")
    (tmp_path / "reviewed.json").write_text(json.dumps(content))
    decided = {
        suspects[0]["id"]: suspects[0]["suggested_label"],
        suspects[1]["id"]: suspects[1]["given_label"],
    }
    check_comes_back(run, tmp_path / "reviewed.json", decided)


def test_fiftyone_itself_reads_the_samples(runs: dict[str, Path], tmp_path: Path) -> None:
    """`Dataset.from_json` wants a database; of each sample it makes this."""
    fo = pytest.importorskip("fiftyone", reason="needs fiftyone")
    for given in exported(runs["image"], "fiftyone", tmp_path / "out")["samples"]:
        sample = fo.Sample.from_dict(given)
        assert sample.label.label == given["given_label"]
        assert sample.suggested.confidence == given["suggested"]["confidence"]
        assert json.loads(sample.to_json())["row_digest"] == given["row_digest"]


@pytest.mark.parametrize("kind", ["image", "text", "table"])
def test_datasets(runs: dict[str, Path], kind: str, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    run = runs[kind]
    tolerant("export", run, "--to", "datasets", "--out", tmp_path / "out", "--limit", 5)
    rows = datasets.load_dataset(
        "parquet", data_files=str(tmp_path / "out" / "suspects.parquet"), cache_dir=str(tmp_path / "cache")
    )["train"]
    suspects = read(run / "suspects.csv")
    assert rows["id"] == [row["id"] for row in suspects[:5]]
    if kind == "image":
        assert min(rows[0]["image"].size) > 1
    labels = [suspects[0]["suggested_label"], None, None, None, suspects[4]["given_label"]]
    rows = rows.remove_columns("new_label").add_column("new_label", labels)
    rows.to_parquet(str(tmp_path / "reviewed.parquet"))
    check_comes_back(run, tmp_path / "reviewed.parquet", {suspects[i]["id"]: labels[i] for i in (0, 4)})


def refused(*words: Any) -> str:
    result = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert result.exit_code != 0
    return f"{result.output}{result.exception}"


def test_a_row_dropped_in_a_parquet_file_is_dropped(tmp_path: Path) -> None:
    rows = {"id": ["a", "b"], "new_label": [None, "cat"], "decision": ["drop", "keep"]}
    pq.write_table(pa.table(rows), tmp_path / "c.parquet")
    assert [(c.id, c.new_label) for c in read_corrections(tmp_path / "c.parquet")] == [
        ("a", None),
        ("b", "cat"),
    ]


def test_what_cannot_be_is_refused(runs: dict[str, Path], tmp_path: Path) -> None:
    assert "fiftyone shows pictures, and this data has none" in refused(
        "export", runs["text"], "--to", "fiftyone", "--out", tmp_path / "o"
    )
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    said = refused("export", runs["text"], "--to", "argilla", "--out", tmp_path / "full")
    assert "name a new folder" in " ".join(said.split())
    assert "is not a finished run" in refused("export", tmp_path, "--to", "argilla")
    for option in (["--limit", "2"], ["--all-rows"]):
        said = refused("audit", runs["text"], "--sample", "5", *option)
        assert "is for the suspects; --sample" in " ".join(said.replace("│", " ").split())
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 cut off")
    with pytest.raises(ValueError, match=r"cut\.parquet cannot be read"):
        read_corrections(tmp_path / "cut.parquet")
