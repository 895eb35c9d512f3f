"""Corrections: what the page exports and people write, read, checked and applied."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tolerant.csv_cells import csv_text, guard, unguard
from tolerant.review import Correction, apply_corrections, read_corrections

IDS = np.array(["a.png", "b.png", "c.png"])
NAMES = ("cat", "dog")
HEADER = "id,given_label,decision,new_label\n"
WITH_DIGEST = "id,given_label,decision,new_label,row_digest\n"
DIGESTS = [f"r{row:016x}" for row in range(3)]


def write(folder: Path, text: str, name: str = "corrections.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# The same examples every time, however slow the machine: a change is judged by itself.
STEADY = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@given(st.text())
@STEADY
def test_guard_is_undone(text: str) -> None:
    assert unguard(guard(text)) == text
    assert not guard(text).lstrip().startswith(("=", "@"))


@given(st.lists(st.lists(st.text(), min_size=2, max_size=2), max_size=5))
@settings(STEADY, max_examples=50)
def test_csv_gives_back_any_text(rows: list[list[str]]) -> None:
    text = csv_text(("id", "new_label"), rows)
    read = list(csv.reader(io.StringIO(text, newline="")))[1:]
    assert [[unguard(cell) for cell in row] for row in read if row] == rows


@pytest.mark.parametrize("number", ["-5", "+3", "1e-5", "-0.25"])
def test_numbers_need_no_guard(number: str) -> None:
    assert guard(number) == number


def test_reads_csv_with_mark_and_apostrophes(tmp_path: Path) -> None:
    path = write(tmp_path, "\ufeff" + HEADER + "'=1+1,cat,accept,dog\n'-x,dog,keep,dog\n")
    assert read_corrections(path) == [
        Correction("=1+1", "dog", "cat", "accept"),
        Correction("-x", "dog", "dog", "keep"),
    ]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_reads_what_a_spreadsheet_saves(tmp_path: Path, delimiter: str) -> None:
    text = (HEADER + "a.png,cat,accept,dog\n").replace(",", delimiter).replace("\n", "\r\n")
    assert read_corrections(write(tmp_path, text)) == [Correction("a.png", "dog", "cat", "accept")]


def test_reads_a_cell_with_odd_line_breaks(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + '"a\u2028b\nc",cat,accept,dog\nx\u2028y,cat,accept,dog\n')
    assert [c.id for c in read_corrections(path)] == ["a\u2028b\nc", "x\u2028y"]


def test_reads_a_file_by_hand_with_two_columns(tmp_path: Path) -> None:
    path = write(tmp_path, "new_label,id\ndog,a.png\n,b.png\n")
    assert read_corrections(path) == [Correction("a.png", "dog")]


def test_an_empty_cell_is_one_left_out(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "a.png,,keep,dog\nb.png,,,cat\n")
    assert read_corrections(path) == [Correction("a.png", "dog", None, "keep"), Correction("b.png", "cat")]


def test_reads_json(tmp_path: Path) -> None:
    entry = {"id": "a.png", "given_label": "cat", "decision": "change", "new_label": "dog"}
    content = {"format": "tolerant-corrections", "version": 1, "corrections": [entry]}
    path = write(tmp_path, json.dumps(content), "corrections.json")
    assert read_corrections(path) == [Correction("a.png", "dog", "cat", "change")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.csv", "id,label\na,b\n", "must have the columns id and new_label, each once; got id, label"),
        ("c.csv", "", "an empty file"),
        ("c.csv", HEADER + "a,cat,keep,cat\na,cat,keep,cat\n", "line 3: the id 'a' occurs twice"),
        ("c.csv", HEADER + "a,cat,maybe,cat\n", "decision must be one of .*got 'maybe'"),
        ("c.csv", HEADER + "a,cat,keep,dog\n", "decision is keep, but new_label 'dog'"),
        ("c.csv", HEADER + ",cat,keep,cat\n", "line 2: the id is missing"),
        (
            "c.csv",
            HEADER + 'a,cat,keep,"cat\nb,cat,keep,cat\n',
            "unexpected end .* quote is not closed",
        ),
        (
            "c.csv",
            HEADER + "a,cat,keep,cat\nb,cat,ke",
            "line 3: 3 cells where .* names 4: .*cut off",
        ),
        ("c.csv", HEADER + "a,cat,accept,\n", "line 2: decision is accept, but new_label is missing"),
        ("c.json", '[{"id": "a", "decision": "maybe"}]', "decision must be one of .*got 'maybe'"),
        ("c.csv", "id,new_label,new_label\na,cat,dog\n", "id and new_label, each once"),
        ("c.csv", HEADER + "a,cat,keep,cat,x\n", "line 2: 5 cells where the first line names 4"),
        ("c.csv", HEADER + 'a,cat,keep,"cat"s\n', "line 2: .*expected after"),
        ("c.csv", HEADER + f"{'a' * 140_000},cat,keep,cat\n", "line 2: field larger than field limit"),
        (
            "c.csv",
            WITH_DIGEST + "a,cat,keep,cat,r0123\n",
            "r and 16 hexadecimal digits, .*got 'r0123'",
        ),
        ("c.csv", WITH_DIGEST + "a,cat,keep,cat,", "row_digest is missing and no line follows: .*cut off"),
        ("c.json", "{", "is not a valid JSON file"),
        ("c.json", '{"corrections": 3}', "must hold a list of corrections"),
        ("c.json", "[1]", "must hold a list of corrections"),
    ],
)
def test_a_bad_file_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_corrections(write(tmp_path, text, name))


@pytest.mark.parametrize(
    ("name", "text"), [("c.csv", HEADER), ("c.csv", HEADER + "a,cat,,\n"), ("c.json", "[]")]
)
def test_a_file_without_a_decision_is_told(tmp_path: Path, name: str, text: str) -> None:
    with pytest.warns(UserWarning, match=rf"{name} holds no decision"):
        assert read_corrections(write(tmp_path, text, name)) == []


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_bytes(HEADER.encode() + "é,cat,keep,cat\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"c\.csv must be UTF-8 text; .*'CSV UTF-8'"):
        read_corrections(tmp_path / "c.csv")


def test_apply_changes_and_keeps() -> None:
    before = np.array([0, 1, 1])
    fixed = apply_corrections(
        before,
        [Correction("b.png", "cat", "dog", "accept"), Correction("c.png", "dog", "dog", "keep")],
        ids=IDS,
        class_names=NAMES,
    )
    assert fixed.given_labels.tolist() == [0, 0, 1]
    assert fixed.reviewed.tolist() == [False, True, True]
    assert fixed.changed.tolist() == [False, True, False]
    assert before.tolist() == [0, 1, 1]


def test_apply_takes_numbers_as_ids() -> None:
    fixed = apply_corrections([0, 0], [Correction("7", "dog")], ids=[5, 7], class_names=NAMES)
    assert fixed.given_labels.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("corrections", "message"),
    [
        ([Correction("z.png", "dog")], "an id that the data does not have: 'z.png'; .*'a.png'"),
        ([Correction("a.png", "cow")], "a label that the data does not have: 'cow'; .*'cat'"),
        ([Correction("a.png", "dog", "dog")], "'a.png' was labelled 'dog', but .* says 'cat'"),
        ([Correction("a.png", "dog"), Correction("a.png", "cat")], "'a.png' occurs twice"),
        ([Correction(f"{n}", "dog") for n in range(5)], "'0', '1', '2' and 2 more"),
    ],
)
def test_corrections_that_do_not_fit_are_refused(corrections: list[Correction], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        apply_corrections([0, 1, 1], corrections, ids=IDS, class_names=NAMES)


def test_what_is_in_the_data_already_is_taken_as_decided() -> None:
    fixed = apply_corrections(
        [1, 1, 1], [Correction("a.png", "dog", "cat", "accept")], ids=IDS, class_names=NAMES
    )
    assert fixed.given_labels.tolist() == [1, 1, 1]
    assert fixed.reviewed.tolist() == [True, False, False]
    assert not fixed.changed.any()


def test_empty_cells_of_a_spreadsheet_are_not_too_many(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "a.png,cat,accept,dog,,\n,,,\n\n")
    assert read_corrections(path) == [Correction("a.png", "dog", "cat", "accept")]


def test_a_decision_is_for_the_row_that_was_seen(tmp_path: Path) -> None:
    path = write(tmp_path, WITH_DIGEST + f"0,cat,accept,dog,{DIGESTS[0]}\n2,dog,accept,cat,{DIGESTS[2]}\n")

    def apply(now: list[str], path: Path = path) -> list[int]:
        fixed = apply_corrections(
            [0, 1, 1],
            read_corrections(path),
            ids=[0, 1, 2],
            class_names=NAMES,
            row_digests=lambda rows: [now[row] for row in rows],
        )
        return fixed.given_labels.tolist()

    assert apply(DIGESTS) == [1, 1, 0]
    with pytest.raises(ValueError, match=r"2 of 2 corrections .*first: '0'.* a column is \(--id\)"):
        apply([*DIGESTS[1:], DIGESTS[0]])
    with pytest.raises(ValueError, match=r"1 of 2 corrections .*first: '2'.* empty its row_digest"):
        apply([*DIGESTS[:2], "edited"])
    path.write_text(path.read_text().replace(DIGESTS[2], ""))
    with pytest.warns(UserWarning, match="1 of 2 corrections have no row_digest"):
        assert apply([*DIGESTS[:2], "edited"]) == [1, 1, 0]


def test_ids_that_are_not_unique_are_refused() -> None:
    with pytest.raises(ValueError, match="ids must name each of the 3 rows once; got 2"):
        apply_corrections([0, 1, 1], [], ids=["a", "a", "b"], class_names=NAMES)


def test_a_dropped_row_has_no_label(tmp_path: Path) -> None:
    (tmp_path / "c.csv").write_text("id,given_label,decision,new_label\na,cat,drop,\nb,cat,,\n")
    (found,) = read_corrections(tmp_path / "c.csv")
    assert (found.id, found.decision, found.new_label) == ("a", "drop", None)
    fixed = apply_corrections([0, 1], [found], ids=["a", "b"], class_names=("cat", "dog"))
    assert fixed.dropped.tolist() == fixed.reviewed.tolist() == [True, False]
    (tmp_path / "c.csv").write_text("id,decision,new_label\na,drop,cat\n")
    with pytest.raises(ValueError, match=r"line 2: decision is drop, so new_label must be empty; got 'cat'"):
        read_corrections(tmp_path / "c.csv")


def test_labels_that_noise_has_written_are_nobodys_decision(tmp_path: Path) -> None:
    (tmp_path / "n.csv").write_text("id,given_label,true_label\na,dog,cat\nb,dog,dog\n")
    np.savez(tmp_path / "n.npz", ids=["a", "b"], given_labels=[1, 1], class_names=["cat", "dog"])
    for name in ("n.csv", "n.npz"):
        found = read_corrections(tmp_path / name)
        fixed = apply_corrections([0, 1], found, ids=["a", "b"], class_names=("cat", "dog"))
        assert fixed.given_labels.tolist() == fixed.original_labels.tolist() == [1, 1]
        assert not fixed.reviewed.any()
    (tmp_path / "n.csv").write_text("id,given_label,true_label,source\na,dog,-1,3\n")
    with pytest.raises(ValueError, match=r"n\.csv holds open-set noise, which replaces the inputs"):
        read_corrections(tmp_path / "n.csv")
    (tmp_path / "n.npz").write_bytes(b"PK")
    with pytest.raises(ValueError, match=r"n.npz cannot be read: .*tolerant noise"):
        read_corrections(tmp_path / "n.npz")
