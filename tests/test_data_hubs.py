"""Data sets as hubs serve them: made by the real `datasets`, read from the disk and from a local hub."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
import warnings
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from data_makers import serving
from own_data_helpers import AT_ONCE, read, tolerant
from PIL import Image
from test_data_mutated import mutated

from tolerant.data import Source, load
from tolerant.data.readers import pictures as decoding
from tolerant.data.stored_pictures import StoredPicture, mapped
from tolerant.own_data.run_folder.places import found_source, stored_source

datasets = pytest.importorskip("datasets")
ROWS, NAMES = 24, ["red", "green", "blue"]


def drawn(row: int) -> Image.Image:
    pixels = np.random.default_rng(row).integers(0, 120, (9, 9, 3))
    pixels[..., row % 3] += 120
    return Image.fromarray(pixels.astype(np.uint8))


def of_pictures(label: str = "label", wrong: tuple[int, ...] = ()) -> Any:
    """Row r shows the colour of class r % 3 and is labelled so, but for the ``wrong`` ones."""
    labels = [(row + (row in wrong)) % 3 for row in range(ROWS)]
    columns = {"image": [drawn(row) for row in range(ROWS)], label: labels}
    kinds = {"image": datasets.Image(), label: datasets.ClassLabel(names=NAMES)}
    return datasets.Dataset.from_dict(columns, datasets.Features(kinds))


def save_parquets(rows: Any, folder: Path) -> Path:
    """As `push_to_hub` lays them out: two shards to train, one to test."""
    (folder / "data").mkdir(parents=True)
    rows.select(range(10)).to_parquet(folder / "data" / "train-00000-of-00002.parquet")
    rows.select(range(10, 18)).to_parquet(folder / "data" / "train-00001-of-00002.parquet")
    rows.select(range(18, ROWS)).to_parquet(folder / "data" / "test-00000-of-00001.parquet")
    (folder / "README.md").write_text("# Colours\n")
    return folder


def save_dict(rows: Any, folder: Path) -> Path:
    splits = {"train": rows.select(range(18)), "test": rows.select(range(18, ROWS))}
    datasets.DatasetDict(splits).save_to_disk(folder)
    return folder


def check_pictures(data: Any, rows: range) -> None:
    assert data.kind == "image"
    assert data.class_names == ("blue", "green", "red")
    assert [data.class_names[label] for label in data.given_labels] == [NAMES[row % 3] for row in rows]
    assert np.array_equal(data.inputs[np.arange(len(data))], [np.asarray(drawn(row)) for row in rows])


@pytest.mark.parametrize("save", [save_parquets, save_dict])
def test_splits_of_a_folder(save: Any, tmp_path: Path) -> None:
    folder = save(of_pictures(), tmp_path / "colours")
    check_pictures(load(folder), range(18))
    check_pictures(load(folder, split="train", label="label", file="image"), range(18))
    check_pictures(load(folder, split="test", class_names=["blue", "green", "red"]), range(18, ROWS))
    with pytest.raises(ValueError, match=r"colours has no split 'dev': .*train.*Say which.*--split"):
        load(folder, split="dev")
    with pytest.raises(ValueError, match="config"):
        load(folder, config="other")


def test_one_split_saved_to_disk(tmp_path: Path) -> None:
    rows = of_pictures().select(range(2, 20))  # a choice of rows, which is saved as rows of its own
    rows.save_to_disk(tmp_path / "colours", num_shards=3)
    check_pictures(load(tmp_path / "colours"), range(2, 20))
    with pytest.raises(ValueError, match="is one split, without a name; leave split='test' out"):
        load(tmp_path / "colours", split="test")
    (tmp_path / "colours" / "data-00001-of-00003.arrow").unlink()
    with pytest.raises(ValueError, match=r"data-00001-of-00003\.arrow is not there.*Save it again"):
        load(tmp_path / "colours")
    (tmp_path / "colours" / "state.json").write_text("{}")
    with pytest.raises(ValueError, match="colours was not written whole: '_data_files'"):
        load(tmp_path / "colours")


def test_configurations_of_a_folder(tmp_path: Path) -> None:
    for config, split in (("small", "train"), ("small", "test"), ("large", "train")):
        (tmp_path / config / split).mkdir(parents=True)
        of_pictures().to_parquet(tmp_path / config / split / "0000.parquet")  # as hubs convert data sets
    with pytest.raises(ValueError, match=r"has several configs: large, small\. Say which with config=..."):
        load(tmp_path)
    assert len(load(tmp_path, config="large")) == ROWS
    assert len(load(tmp_path, config="small", split="test")) == ROWS
    with pytest.raises(ValueError, match=r"takes no option 'config'"):
        load(tmp_path / "large" / "train" / "0000.parquet", config="large")


def encoded(row: int, ending: str = "PNG") -> bytes:
    import io

    file = io.BytesIO()
    drawn(row).save(file, ending)
    return file.getvalue()


@pytest.mark.parametrize("form", ["bytes", "struct", "large", "paths", "paths in a struct", "hub"])
def test_ways_to_hold_pictures_in_a_parquet_file(form: str, tmp_path: Path) -> None:
    path, rows = tmp_path / "colours.parquet", range(ROWS)
    names = [f"{row}.png" for row in rows]
    if "paths" in form:
        for row in rows:
            drawn(row).save(tmp_path / names[row])
    whole = [encoded(row) for row in rows]
    cells: Any = {
        "bytes": pa.array(whole),
        "large": pa.array(whole, pa.large_binary()),
        "struct": pa.array([{"bytes": b, "path": n} for b, n in zip(whole, names, strict=True)]),
        "paths": pa.array(names),
        "paths in a struct": pa.array([{"bytes": None, "path": name} for name in names]),
    }.get(form)
    if form == "hub":
        of_pictures().to_parquet(path)
    else:
        labels = pa.array([NAMES[row % 3] for row in rows])
        pa.parquet.write_table(pa.table({"image": cells, "label": labels}), path, row_group_size=5)
    data = load(path)
    check_pictures(data, rows)
    known = names if "path" in form or form == "struct" else [str(row) for row in rows]
    assert data.ids.tolist() == known
    assert load(path, id="label").ids.tolist() == [NAMES[row % 3] for row in rows]


def test_pictures_beyond_memory_stay_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then they are decoded when asked for; also by a process elsewhere, which opens the file itself."""
    monkeypatch.setattr(decoding, "MEMORY_BYTES", 1000)
    of_pictures().to_parquet(tmp_path / "colours.parquet", batch_size=7)
    save_dict(of_pictures(), tmp_path / "saved")
    for source, rows in ((tmp_path / "colours.parquet", range(ROWS)), (tmp_path / "saved", range(18))):
        data = load(source)
        assert isinstance(data.inputs, decoding.ImageFiles)
        assert all(isinstance(file, StoredPicture) for file in data.files)
        check_pictures(data, rows)
        assert len(pickle.dumps(data.inputs)) < 150 * len(data)  # addresses, not pictures
        there = pickle.loads(pickle.dumps(data.inputs))
        assert np.array_equal(there[np.array([17, 3])], [np.asarray(drawn(17)), np.asarray(drawn(3))])


def test_texts_and_cells(tmp_path: Path) -> None:
    words = {"text": ["sun", "rain", "goal", "team"], "label": [0, 0, 1, 1]}
    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["weather", "sport"])}
    datasets.Dataset.from_dict(words, datasets.Features(kinds)).save_to_disk(tmp_path / "texts")
    texts = load(tmp_path / "texts")
    assert texts.kind == "text"
    assert texts.inputs.tolist() == words["text"]
    assert [texts.class_names[label] for label in texts.given_labels] == ["weather"] * 2 + ["sport"] * 2
    cells = {"a": [0.5, 1.5, 2.5, 3.5], "town": [0, 1, 0, 1], "kind": ["x", "y", "x", "y"]}
    features = {"a": datasets.Value("float32"), "town": datasets.ClassLabel(names=["Ulm", "Bonn"])}
    kinds = features | {"kind": datasets.Value("string")}
    datasets.Dataset.from_dict(cells, datasets.Features(kinds)).save_to_disk(tmp_path / "cells")
    table = load(tmp_path / "cells", label="kind")
    assert table.encoder.feature_names == ("a", "town = Bonn", "town = Ulm")


def test_rows_without_a_label_are_minus_one(tmp_path: Path) -> None:
    words = {"text": ["sun", "rain", "goal", "team", "?"], "label": [0, 0, 1, 1, -1]}
    kinds = {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["weather", "sport"])}
    datasets.Dataset.from_dict(words, datasets.Features(kinds)).save_to_disk(tmp_path / "texts")
    with pytest.raises(ValueError, match=r"texts: 1 rows have no 'label' \(first: row 4"):
        load(tmp_path / "texts")
    with pytest.warns(UserWarning, match="1 of 5 rows have no 'label'"):
        assert len(load(tmp_path / "texts", skip_unlabelled=True)) == 4


def test_what_is_wrong_is_named_by_file_and_column(tmp_path: Path) -> None:
    folder = save_parquets(of_pictures(), tmp_path / "colours")
    two = of_pictures().add_column("other", [{"bytes": encoded(0), "path": None}] * ROWS)
    two.to_parquet(tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"two\.parquet has pictures in the columns 'image' and 'other'"):
        load(tmp_path / "two.parquet")
    assert len(load(tmp_path / "two.parquet", file="other")) == ROWS
    of_pictures("kind").to_parquet(folder / "data" / "train-00001-of-00002.parquet")
    with pytest.raises(ValueError, match=r"train-0000[01]-of.*has no column '(kind|label)', and .*-0000"):
        load(folder)
    bad = pa.parquet.read_table(tmp_path / "two.parquet").to_pylist()
    bad[3]["label"] = 7
    schema = pa.parquet.read_schema(tmp_path / "two.parquet")
    pa.parquet.write_table(pa.Table.from_pylist(bad, schema), tmp_path / "two.parquet")
    with pytest.raises(ValueError, match=r"two\.parquet: column 'label' has the class 7 in row 3, and names"):
        load(tmp_path / "two.parquet", file="image")
    frame = pandas.DataFrame({"image": [encoded(row) for row in range(6)], "label": list("xyxyxy")})
    frame.loc[1, "image"], frame.loc[4, "image"] = b"no picture", None
    frame.to_parquet(tmp_path / "some.parquet")
    with pytest.warns(UserWarning, match=r"2 of 6 .*: 1: not a picture .*; 4: an empty cell"):
        assert load(tmp_path / "some.parquet").ids.tolist() == ["0", "2", "3", "5"]
    save_dict(of_pictures(), tmp_path / "saved")
    file = tmp_path / "saved" / "train" / "data-00000-of-00001.arrow"
    whole = file.read_bytes()
    for cut in (0, 100, len(whole) // 2):
        file.write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"data-00000-of-00001\.arrow is not a readable table"):
            load(tmp_path / "saved")


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_damaged_files_are_refused_in_a_sentence(form: str, tmp_path: Path) -> None:
    if form == "parquet":
        source = file = tmp_path / "colours.parquet"
        of_pictures().to_parquet(file)
    else:
        of_pictures().save_to_disk(tmp_path / "saved")
        source, file = tmp_path / "saved", tmp_path / "saved" / "data-00000-of-00001.arrow"
    whole, draw, said = file.read_bytes(), np.random.default_rng(0), []
    for _ in range(100):
        file.write_bytes(mutated(whole, draw))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pictures left out
            try:
                load(source)
            except ValueError as error:
                said.append(str(error))
    assert len(said) > 20
    assert all(line.startswith(str(tmp_path)) and len(line.splitlines()) == 1 for line in said)


def numbered_classes(path: Path, names: Any, numbers: Any) -> Path:
    said = {"info": {"features": {"label": {"_type": "ClassLabel", "names": names}}}}
    rows = pa.table({"x": np.arange(8.0), "label": numbers})
    pq.write_table(rows.replace_schema_metadata({"huggingface": json.dumps(said)}), path)
    return path


@pytest.mark.parametrize("names", [5, "ab", {"0": "a", "1": "b"}, ["a", "a"], [None, "b"], [["a"], "b"]])
def test_names_of_classes_that_are_no_words_or_not_different_are_refused(names: Any, tmp_path: Path) -> None:
    path = numbered_classes(tmp_path / "x.parquet", names, [0, 1] * 4)
    with pytest.raises(ValueError, match=r"x\.parquet: the classes of column 'label': .* must be"):
        load(path)


def test_no_class_is_made_of_a_fraction(tmp_path: Path) -> None:
    path = numbered_classes(tmp_path / "x.parquet", ["a", "b"], [0.0, 1.0] * 3 + [0.7, 1.0])
    with pytest.raises(ValueError, match=r"column 'label' has the class 0\.7 in row 6"):
        load(path)


def test_a_folder_that_was_not_fetched_whole_is_refused(tmp_path: Path) -> None:
    for part in (0, 2):
        numbered_classes(tmp_path / f"train-0000{part}-of-00003.parquet", ["a", "b"], [0, 1] * 4)
    with pytest.raises(ValueError, match=r"2 of 3 parts of 'train' \(first missing: 00001\).*Fetch it again"):
        load(tmp_path)
    numbered_classes(tmp_path / "train-00001-of-00003.parquet", ["a", "b"], [0, 1] * 4)
    assert len(load(tmp_path)) == 24
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "state.json").write_text('{"_data_files": []}')
    with pytest.raises(ValueError, match=r"state\.json names no file with rows"):
        load(tmp_path / "saved")


def test_a_pipe_among_parquet_files_is_not_waited_for(tmp_path: Path) -> None:
    numbered_classes(tmp_path / "a.parquet", ["a", "b"], [0, 1] * 4)
    os.mkfifo(tmp_path / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet is a pipe or a device"):
        load(tmp_path)


def test_a_saved_data_set_cannot_name_files_elsewhere(tmp_path: Path) -> None:
    save_dict(of_pictures(), tmp_path / "saved")
    state = tmp_path / "saved" / "train" / "state.json"
    content = json.loads(state.read_text())
    content["_data_files"][0]["filename"] = "../test/data-00000-of-00001.arrow"
    state.write_text(json.dumps(content))
    check_pictures(load(tmp_path / "saved"), range(18))  # the one beside it
    of = pa.array([{"bytes": None, "path": "/dev/zero"}, {"bytes": encoded(1), "path": None}] * 2)
    path = tmp_path / "zero.parquet"
    pa.parquet.write_table(pa.table({"image": of, "label": ["x", "y", "y", "x"]}), path)
    with pytest.warns(UserWarning, match=r"2 of 4 pictures left out: 0: a pipe or a device"):
        load(path, min_per_class=1)


def test_from_the_training_to_the_corrections(tmp_path: Path) -> None:
    """The page, the exports and `predict` take pictures in cells as they take files."""
    folder = save_parquets(of_pictures("colour", wrong=(3, 7)), tmp_path / "colours")
    said = tolerant("train", folder, "--out", tmp_path / "run", "--features", "none", *AT_ONCE)
    assert "--label colour" in said
    assert "data:image/webp" in (tmp_path / "run" / "report.html").read_text()
    tolerant("predict", tmp_path / "run", folder, "--split", "test", "--out", tmp_path / "new.csv")
    assert [row["id"] for row in read(tmp_path / "new.csv")] == [str(row) for row in range(6)]
    pandas.DataFrame({"picture": [encoded(1)]}).to_parquet(tmp_path / "new.parquet")
    tolerant("predict", tmp_path / "run", tmp_path / "new.parquet", "--out", tmp_path / "new.csv")
    assert len(read(tmp_path / "new.csv")) == 1
    suspects = read(tmp_path / "run" / "suspects.csv")
    assert suspects
    for tool in ("label-studio", "argilla", "fiftyone", "datasets"):
        tolerant("export", tmp_path / "run", "--to", tool)
    sample = json.loads((tmp_path / "run" / "fiftyone" / "samples.json").read_text())["samples"][0]
    with Image.open(sample["filepath"]) as picture:
        assert picture.size == (9, 9)
    reviewed = pandas.read_parquet(tmp_path / "run" / "datasets" / "suspects.parquet")
    reviewed["new_label"] = reviewed["suggested_label"]
    reviewed.to_parquet(tmp_path / "reviewed.parquet")
    again = ("--labels", tmp_path / "reviewed.parquet", "--out", tmp_path / "again", "--features", "none")
    assert f"{len(suspects)} reviewed" in tolerant("train", folder, *again, *AT_ONCE)


def hub_of(folder: Path) -> Any:
    """Answers of a hub that has the files of ``folder`` as someone/colours."""
    commit = "a" * 40
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}

    def answer(handler: BaseHTTPRequestHandler) -> None:
        where, _, _ = handler.path.partition("?")
        headers, status, content = {"X-Repo-Commit": commit}, 404, b"{}"
        if "/resolve/" in where and where.startswith("/datasets/someone/colours/"):
            name = where.partition("/resolve/")[2].partition("/")[2]
            headers["X-Error-Code"] = "EntryNotFound"
            if name in files:
                status, content = 200, files[name].read_bytes()
                headers["ETag"] = f'"{hashlib.sha1(content).hexdigest()}"'
        elif where.startswith("/api/datasets/someone/colours"):
            status, headers["Content-Type"] = 200, "application/json"
            about: Any = {"id": "someone/colours", "sha": commit, "private": False, "tags": []}
            about |= {"siblings": [{"rfilename": name} for name in files]}
            if "/tree/" in where:
                below = where.partition("/tree/")[2].partition("/")[2]
                about = [
                    {"type": "file", "path": name, "size": path.stat().st_size, "oid": "0" * 40}
                    for name, path in files.items()
                    if name.startswith(below)
                ] + [{"type": "directory", "path": "data", "oid": "1" * 40}] * (not below)
            content = json.dumps(about).encode()
        else:
            headers["X-Error-Code"] = "RepoNotFound"
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(content)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(content)

    return answer


FROM_A_HUB = """
import sys, time
from tolerant.data import Source, load
assert (len(load("hf:someone/colours")), len(load("hf:someone/colours", split="test"))) == (18, 6)
for name, options in (("someone/nothing", {}), ("someone/colours", {"split": "dev"}), ("a/b/c", {})):
    try:
        load(f"hf:{name}", **options)
    except ValueError as error:
        print(error)
print("close", flush=True)
sys.stdin.readline()
data, start = load("hf:someone/colours", split="test"), time.monotonic()
assert len(data) == 6, data
try:
    load("hf:someone/other")
except ConnectionError as error:
    print(error)
assert time.monotonic() - start < 6
"""


def test_from_a_hub_and_without_it(tmp_path: Path) -> None:
    """A process of its own: the library reads where the hub is as it is imported."""
    folder = save_parquets(of_pictures(), tmp_path / "colours")
    with serving(hub_of(folder)) as server:
        where = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")}
        words = ("PROXY", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
        kept = {name: value for name, value in os.environ.items() if not name.upper().endswith(words)}
        process = subprocess.Popen(
            [sys.executable, "-c", FROM_A_HUB],
            env=kept | where,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        said = []
        while (line := process.stdout.readline()) not in ("close\n", ""):
            said.append(line)
    rest, errors = process.communicate("go on\n")
    assert process.returncode == 0, errors
    assert "hf:someone/nothing cannot be loaded: Dataset 'someone/nothing' doesn't exist" in said[0]
    assert "hf:someone/colours has no split 'dev': train, test. Say which" in said[1]
    assert "must be hf:OWNER/NAME" in said[2]
    assert "hf:someone/other is not on this machine, and the hub cannot be reached" in rest
    assert "hf download someone/other --repo-type dataset --local-dir FOLDER" in rest


def test_a_name_of_the_hub_without_its_prefix_is_understood() -> None:
    with pytest.raises(FileNotFoundError, match=r"On the Hugging Face hub\? hf:someone/colours"):
        load("someone/colours")


def test_a_folder_is_not_taken_for_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "someone" / "colours").mkdir(parents=True)
    with pytest.raises(ValueError, match="a folder someone/colours lies here"):
        load("hf:someone/colours")


def test_a_run_keeps_the_name_of_the_hub(tmp_path: Path) -> None:
    """It is no path, to be looked for beside the run."""
    source = Source("hf:someone/colours", {"split": "test", "config": "small"})
    stored = stored_source(source, tmp_path)
    assert stored == {"name": source.name, "options": source.options}
    assert found_source(stored, tmp_path) == source


def test_a_damaged_file_of_pictures_is_not_read_beyond_its_end(tmp_path: Path) -> None:
    table = pa.table({"image": [b"abc", b"defg"], "label": ["a", "b"]})
    with pa.OSFile(str(tmp_path / "rows.arrow"), "wb") as file, pa.ipc.new_stream(file, table.schema) as out:
        out.write_table(table)
    content = (tmp_path / "rows.arrow").read_bytes()
    places = np.array([0, 3, 7], np.int32).tobytes()  # where the cells of the column begin and end
    assert content.count(places) == 1
    (tmp_path / "rows.arrow").write_bytes(content.replace(places, np.array([0, 3, 7000], np.int32).tobytes()))
    with pytest.raises(pa.ArrowInvalid):
        mapped(tmp_path / "rows.arrow")
