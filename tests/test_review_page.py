"""The review page as a file: what is in it, that it is safe, what is refused."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
import sys
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tolerant.data import NoisyDataset, TableEncoder, load
from tolerant.review import write_page
from tolerant.review.charts import MOST_CLASSES, curves, heat_map
from tolerant.review.thumbnails import PIXELS, data_uri
from tolerant.suspects import Suspects, find_suspects

HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "__proto__",
    "\"quoted\" 'single' & <!-- comment",
    "two\nlines \u2028 and ]]> ${1}",
)


def dataset(num_rows: int = 40, names: tuple[str, ...] = ("a", "b"), **options: Any) -> NoisyDataset:
    inputs = np.zeros((num_rows, 4, 4, 1), np.uint8)
    options = {"inputs": inputs, "kind": "image"} | options
    given = np.arange(num_rows) % len(names)
    return NoisyDataset(given_labels=given, true_labels=None, class_names=names, **options)


def suspects_of(rows: NoisyDataset, wrong: int = 10, **options: Any) -> Suspects:
    """The first `wrong` rows are believed to carry the next class."""
    believed = rows.given_labels.copy()
    believed[:wrong] = (believed[:wrong] + 1) % rows.num_classes
    probs = np.full((len(rows), rows.num_classes), 0.1 / (rows.num_classes - 1))
    probs[np.arange(len(rows)), believed] = 0.9
    return find_suspects(rows.given_labels, probs, ids=rows.ids, class_names=rows.class_names, **options)


def page(folder: Path, rows: NoisyDataset, suspects: Suspects | None = None, **options: Any) -> str:
    suspects = suspects_of(rows) if suspects is None else suspects
    write_page(folder / "report.html", suspects, rows, **options)
    return (folder / "report.html").read_text(encoding="utf-8")


def data_of(text: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert match
    return json.loads(match[1])


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    rows = dataset(names=HOSTILE, ids=np.array([f"{HOSTILE[0]} {row}" for row in range(40)]))
    history = {HOSTILE[0]: [1.0, 2.0]}
    text = page(tmp_path, rows, title=HOSTILE[1], history=history)
    assert text.count("<script") == text.count("</script>") == 2
    assert "<img" not in text
    assert data_of(text)["classes"] == list(HOSTILE)
    assert HOSTILE[1] in unescape(text)
    assert "\u2028" not in text.split('id="data">')[1]


def test_nothing_but_its_own_script_and_style_may_run(tmp_path: Path) -> None:
    text = page(tmp_path, dataset())
    for tag in ("script", "style"):
        content = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in text
    assert "default-src 'none'" in text
    assert not re.search(r"\bstyle=|\bon[a-z]+=\"", text)  # the policy would refuse them
    links = re.findall(r"(?:src|href)=\"([^\"]*)\"|url\(([^)]*)\)", text)
    assert all(link.startswith(("#", '"data:')) for pair in links for link in pair if link)


def test_decisions_are_kept_for_the_same_suspects_only(tmp_path: Path) -> None:
    rows = dataset()
    first, again = data_of(page(tmp_path, rows)), data_of(page(tmp_path, rows, title="other"))
    other = data_of(page(tmp_path, rows, suspects_of(rows, wrong=9)))
    assert first["run"] == again["run"] != other["run"]


def test_limit_takes_the_most_doubtful(tmp_path: Path) -> None:
    rows = dataset()
    suspects = suspects_of(rows)
    text = page(tmp_path, rows, suspects, limit=3)
    assert data_of(text)["index"] == suspects.index[:3].tolist()
    assert "the 3 most doubtful are here" in text


def test_pictures_go_in_as_they_are_asked_for(tmp_path: Path) -> None:
    inputs = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3)).astype(np.uint8)
    rows = dataset(inputs=inputs)
    suspects = suspects_of(rows)
    pictures = data_of(page(tmp_path, rows, suspects))["pictures"]
    for row, uri in zip(suspects.index, pictures, strict=True):
        np.testing.assert_array_equal(decode(uri), inputs[row])


def test_a_model_that_doubts_most_labels_is_called_weak(tmp_path: Path) -> None:
    rows = dataset()
    few, most = suspects_of(rows, wrong=20), suspects_of(rows, wrong=21)
    assert "too weak to judge" not in page(tmp_path, rows, few)
    assert "too weak to judge" in page(tmp_path, rows, most, limit=3)


def test_pictures_from_files_are_shown_as_they_are(tmp_path: Path) -> None:
    """A person sees the photograph, not the small square that the model gets."""
    for row in range(40):
        (tmp_path / "p" / "ab"[row % 2]).mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (400, 200), (row, 99, 99)).save(tmp_path / "p" / "ab"[row % 2] / f"{row:02}.jpg")
    rows = load(tmp_path / "p", size=8)
    suspects = suspects_of(rows)
    shown = decode(data_of(page(tmp_path, rows, suspects))["pictures"][0])
    assert shown.shape == (PIXELS // 2, PIXELS, 3)
    part = rows.subset(np.arange(20))
    assert Path(part.files[3]) == tmp_path / "p" / part.ids[3]
    for file in rows.files:
        Path(file).unlink()
    small = decode(data_of(page(tmp_path, rows, suspects))["pictures"][0])
    assert small.shape == (8, 8, 3)
    with pytest.raises(ValueError, match="files must have 40 paths; got 1"):
        dataset(files=np.array(["x"]))


def test_features_of_pictures_are_shown_as_the_pictures(tmp_path: Path) -> None:
    names = [f"{row}.png" for row in range(40)]
    for row, name in enumerate(names):
        Image.new("RGB", (9, 6), (row, 99, 99)).save(tmp_path / name)
    np.savez(tmp_path / "x.npz", features=np.eye(40), labels=["a", "b"] * 20, files=names)
    rows = load(tmp_path / "x.npz")
    assert rows.ids.tolist() == names
    suspects = suspects_of(rows)
    text = page(tmp_path, rows, suspects)
    shown = data_of(text)
    assert 'class="cards image ' in text
    assert decode(shown["pictures"][0])[0, 0].tolist() == [suspects.index[0], 99, 99]
    (tmp_path / names[3]).write_bytes(b"damaged since")
    assert decode(data_of(page(tmp_path, rows, suspects))["pictures"][shown["index"].index(3)]).shape[:2] == (
        1,
        1,
    )
    (tmp_path / names[3]).unlink()
    assert data_of(page(tmp_path, rows, suspects))["features"][0] == "feature 1"


def test_texts_are_cut(tmp_path: Path) -> None:
    texts = np.array([HOSTILE[0] * 500] * 20 + ["short"] * 20, dtype=object)
    texts_shown = data_of(page(tmp_path, dataset(inputs=texts, kind="text")))["texts"]
    assert texts_shown[0].startswith(HOSTILE[0])
    assert len(texts_shown[0]) < 2_050


def test_table_rows_have_names_and_values(tmp_path: Path) -> None:
    inputs = np.tile(np.float32([1.5, np.nan, 1e-8]), (40, 1))
    rows = dataset(inputs=inputs, kind="table")
    data = data_of(page(tmp_path, rows))
    assert data["features"] == ["feature 1", "feature 2", "feature 3"]
    assert data["values"][0] == ["1.5", "nan", "1e-08"]


def test_a_table_shows_its_cells_and_the_columns_left_out(tmp_path: Path) -> None:
    cells = ["Ulm;1.234,5;20;why?;", "Bonn;0,25;;no;", "Ulm;1.000;40;;", "Ulm;3,5;60;" + "so " * 400 + ";"]
    lines = [f"{cells[row % 4]}{'ab'[row // 4 % 2]}" for row in range(40)]
    (tmp_path / "x.csv").write_text("town;income;age;comment;label\n" + "\n".join(lines), encoding="utf-8")
    rows = load(tmp_path / "x.csv", ignore=["comment"])
    suspects = suspects_of(rows)
    data = data_of(page(tmp_path, rows, suspects))
    assert data["features"] == ["town", "income", "age", "comment (not used)"]
    by_row = dict(zip(suspects.index.tolist(), data["values"], strict=True))
    assert [by_row[row] for row in range(3)] == [
        ["Ulm", "1.234,5", "20", "why?"],
        ["Bonn", "0,25", "missing", "no"],
        ["Ulm", "1.000", "40", "missing"],
    ]
    assert by_row[3][3].endswith("(cut here)")
    half = rows.subset(np.arange(0, 40, 3))
    assert half.cells["comment"].tolist()[:2] == ["why?", "so " * 400], "a subset has its own cells"
    with pytest.raises(ValueError, match="cells must have 40 rows; got 3"):
        replace(rows, cells=rows.cells[:3])


def test_a_wide_table_still_shows_the_columns_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = pd.DataFrame({f"x{i}": np.arange(40.0) % 7 for i in range(60)} | {"note": ["n"] * 40})
    frame.assign(label=list("ab") * 20).to_parquet(tmp_path / "x.parquet")
    rows = load(tmp_path / "x.parquet", ignore=["note"])
    data = data_of(page(tmp_path, rows))
    assert data["features"] == [*(f"x{i}" for i in range(60)), "note (not used)"]
    assert {value for row in data["values"] for value in row[:60]} <= set(map(str, np.arange(7.0)))
    monkeypatch.setattr("tolerant.review.page._MOST_CELLS", 100)  # of many rows, not all columns fit
    cut = data_of(page(tmp_path, rows))
    assert cut["features"] == [*(f"x{i}" for i in range(39)), "note (not used)"]


def test_without_its_cells_a_table_shows_the_encoders_features(tmp_path: Path) -> None:
    frame = pd.DataFrame({"town": ["Ulm", "Bonn"] * 20})
    encoder = TableEncoder.fit(frame)
    rows = dataset(inputs=encoder.transform(frame), kind="table", encoder=encoder)
    assert data_of(page(tmp_path, rows))["features"] == ["town = Bonn", "town = Ulm"]
    shown = data_of(page(tmp_path, replace(rows, cells=frame)))
    assert shown["features"] == ["town"]
    assert {value for (value,) in shown["values"]} == {"Ulm", "Bonn"}


def test_the_summary_says_what_was_found(tmp_path: Path) -> None:
    rows = dataset(num_rows=1_000)
    kept = np.arange(1_000) >= 250
    suspects = suspects_of(rows, wrong=120, kept=kept)
    text = re.sub(r"\s+", " ", page(tmp_path, rows, suspects, history={"loss": [2.0, 1.0, 0.5]}))
    assert "would label 120 of 1,000 rows differently" in text
    assert "<dt>Kept in training</dt> <dd><strong>750</strong><small>of 1,000 rows, 75 %" in text
    assert "loss: 2 at the first epoch, 0.5 at the last, between 0.5 and 2" in text
    assert "Pruned in training" in text


def test_a_class_that_is_never_predicted_is_named(tmp_path: Path) -> None:
    given = np.repeat([0, 1], [180, 20])
    probs = np.tile([0.8, 0.2], (200, 1))
    rows = replace(dataset(num_rows=200), given_labels=given, true_labels=None, class_names=("no", "<yes>"))
    found = find_suspects(given, probs, class_names=rows.class_names)
    text = page(tmp_path, rows, found)
    assert "hardly recognises &#39;&lt;yes&gt;&#39; (20 rows, predicted for 0). Unless most of" in text
    probs[-20:] = [0.3, 0.7]
    found = find_suspects(given, probs, class_names=rows.class_names)
    assert "hardly recognises" not in page(tmp_path, rows, found)


def test_nothing_suspect_is_a_page_too(tmp_path: Path) -> None:
    rows = dataset()
    text = page(tmp_path, rows, suspects_of(rows, wrong=0))
    assert "The model agrees with the given label of all 40 rows." in text
    assert "Kept in training" not in text


def test_another_data_set_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"dataset must be the one the suspects come from.*40"):
        page(tmp_path, dataset(41), suspects_of(dataset(40)))


def test_without_jinja2_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ModuleNotFoundError, match=r"jinja2: pip install .*\[app\]'"):
        page(tmp_path, dataset())


def test_heat_map_shades_mistakes_only() -> None:
    heat = heat_map(np.array([[0.9, 0.1, 0.0], [0.0, 1.0, 0.0], [0.02, 0.0, 0.98]]), "abc", {(0, 1)})
    looks = [[cell["look"] for cell in row["cells"]] for row in heat["rows"]]
    assert looks == [["own", "h5", "zero"], ["zero", "own", "zero"], ["h1", "zero", "own"]]
    assert [cell["text"] for cell in heat["rows"][0]["cells"]] == ["90", "10", "0"]
    assert heat["rows"][0]["cells"][1]["pair"] == (0, 1)
    assert heat["rows"][2]["cells"][0]["pair"] is None


def test_heat_map_of_many_classes_shows_the_worst() -> None:
    transition = np.eye(100)
    transition[70, [70, 71]] = 0.5, 0.5
    heat = heat_map(transition, [f"class {label}" for label in range(100)], set())
    assert heat["cut"]
    assert len(heat["rows"]) == MOST_CLASSES
    assert {"class 70", "class 71"} <= set(heat["names"])


def test_of_mistakes_that_are_all_alike_no_class_is_the_worst(tmp_path: Path) -> None:
    names = tuple(f"class {label}" for label in range(50))
    rows = dataset(100, names)
    suspects = suspects_of(rows)  # 2,500 entries of T from 100 rows: it is symmetric
    text = page(tmp_path, rows, suspects)
    assert "with the most wrong labels" not in text
    assert "too few rows to tell which of 50 classes" in text
    assert not heat_map(suspects.transition, names, set())["rows"]


def test_heat_map_stands_names_upright_that_do_not_fit_beside_each_other() -> None:
    assert not heat_map(np.eye(3), ("cat", "dog", "bird"), set())["upright"]
    assert heat_map(np.eye(3), ("a long name", "another long name", "bird"), set())["upright"]
    assert not heat_map(np.eye(20), [str(label) for label in range(20)], set())["upright"]


def test_heat_map_without_mistakes_is_plain() -> None:
    cells = [c for row in heat_map(np.eye(2), "ab", set())["rows"] for c in row["cells"]]
    assert [cell["look"] for cell in cells] == ["own", "zero", "zero", "own"]


def test_curves_skip_gaps_and_what_cannot_be_drawn() -> None:
    drawn = curves({"epoch": [0, 1], "loss": [None, 1.0, float("nan"), 1.0], "one": [3.0]})
    assert [curve["name"] for curve in drawn] == ["loss"]
    assert drawn[0]["line"] == "M33.33 38.00L100.00 38.00"
    assert drawn[0]["length"] == 4


def decode(uri: str) -> np.ndarray:
    assert uri.startswith("data:image/webp;base64,")
    image = Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1])))
    return np.asarray(image)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_large_pictures_shrink(channels: int) -> None:
    picture = np.full((400, 1000, channels), 200, np.uint8)
    assert decode(data_uri(picture)).shape[:2] == (PIXELS * 4 // 10, PIXELS)


def test_pictures_that_are_none_are_refused() -> None:
    with pytest.raises(ValueError, match="pictures must be uint8 arrays"):
        data_uri(np.zeros((4, 4, 3)))
