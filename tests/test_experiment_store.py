"""The store: whole rows or none, one a key, whoever writes and whenever they die."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wrong_values import wrong_in

from tolerant.cli import make_app
from tolerant.experiment import Store, missing, named_grid
from tolerant.experiment.spec import rows_by_key
from tolerant.experiment.time_left import GridProgress
from tolerant.report.selection import select

ROW = {"spec": {}, "versions": {}}


def test_rows_come_back_as_written(tmp_path: Path) -> None:
    store = Store(tmp_path)
    row = {**ROW, "key": "a", "spec": {"q": 0.7, "name": "T̂"}, "result": {"x": 0.1 + 0.2}}
    assert store.append(row)
    assert store.rows() == [row]


def test_a_key_is_stored_once_in_all_files(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.append({**ROW, "key": "a", "n": 1}, file="one.jsonl")
    assert not store.append({**ROW, "key": "a", "n": 2}, file="two.jsonl")
    assert store.rows() == [{**ROW, "key": "a", "n": 1}]


@pytest.mark.parametrize("cut", [1, 5, -1])
def test_half_a_line_costs_itself_alone(tmp_path: Path, cut: int) -> None:
    store = Store(tmp_path)
    store.append({**ROW, "key": "a"})
    path = tmp_path / "runs.jsonl"
    path.write_text(path.read_text() + '{"key":"b","long":"value"}'[:cut])
    assert store.keys() == {"a"}
    assert store.append({**ROW, "key": "b"})
    assert [row["key"] for row in store.rows()] == ["a", "b"]
    assert store.torn() == ["runs.jsonl:2"]


@pytest.mark.parametrize(
    "line",
    [
        '{"key": "a", "value": 3}',
        '{"key": ["a"], "spec": {}, "versions": {}}',
        '{"key": "a", "spec": "b", "versions": 2}',
        "[" * 100_000,
    ],
)
def test_a_file_of_another_tool_is_skipped_and_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "other.jsonl").write_text(f"{line}\n")
    store = Store(tmp_path)
    assert (rows_by_key(store.rows()), select(store, "digits"), store.torn()) == ({}, [], ["other.jsonl:1"])
    said = CliRunner().invoke(make_app(), ["report", "digits", "--results", str(tmp_path)])
    assert f"{tmp_path}/other.jsonl:1 does not hold a complete row and was skipped" in said.output


def test_a_full_disk_is_named_and_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path)
    store.append({**ROW, "key": "a"})
    before = (tmp_path / "runs.jsonl").read_bytes()
    write = os.write
    room = [5]  # bytes

    def almost_full(handle: int, data: memoryview) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        room[0] -= (written := write(handle, data[: room[0]]))
        return written

    monkeypatch.setattr(os, "write", almost_full)
    with pytest.raises(OSError, match=r"cannot add a row to .*runs\.jsonl: No space left"):
        store.append({**ROW, "key": "b"})
    assert (tmp_path / "runs.jsonl").read_bytes() == before
    room[0] = 10**6
    assert store.append({**ROW, "key": "b"})
    assert (store.keys(), store.torn()) == ({"a", "b"}, [])


def test_nan_is_refused_and_leaves_no_trace(tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(ValueError):
        store.append({**ROW, "key": "a", "x": float("nan")})
    assert store.rows() == []


def test_what_a_killed_writer_of_a_history_left_goes_with_the_next(tmp_path: Path) -> None:
    store, left = Store(tmp_path), tmp_path / "history" / ".a.json.0a1b2c3d"
    other = left.with_name(".b.json.0a1b2c3d")  # another process may be at it
    left.parent.mkdir()
    for path in (left, other):
        path.write_text("{")
    store.write_history("a", {"loss": [1.0]})
    assert sorted(left.parent.iterdir()) == [other, left.with_name("a.json")]


def test_a_history_of_120_epochs_takes_few_kilobytes(tmp_path: Path) -> None:
    store = Store(tmp_path)
    columns = {f"column_{i}": [1 / (3 + i + e) for e in range(120)] for i in range(9)}
    columns["gaps"] = [float("nan")] * 120
    row = {**ROW, "key": "a", "history": store.write_history("a", columns)}
    store.append(row)
    back = store.history(row)
    assert back["gaps"] == [None] * 120
    assert back["column_3"] == pytest.approx(columns["column_3"], rel=1e-4)
    assert (tmp_path / row["history"]).stat().st_size < 12_000


def _write_many(folder: str, first: int) -> None:
    store = Store(folder)
    for number in range(first, first + 10):
        store.append({**ROW, "key": str(number), "text": "x" * 5000})


def test_several_writers_lose_and_double_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    # The ranges overlap: 5 keys are written by two processes.
    team = [context.Process(target=_write_many, args=(str(tmp_path), n)) for n in (0, 5)]
    for process in team:
        process.start()
    for process in team:
        process.join()
    keys = [json.loads(line)["key"] for line in (tmp_path / "runs.jsonl").read_text().splitlines()]
    assert sorted(keys, key=int) == [str(number) for number in range(15)]


def test_a_row_with_anything_wrong_in_it_stops_nobody(tmp_path: Path) -> None:
    """It is named and left aside, or read; what was stored beside it counts."""
    results = Path(__file__).parent.parent / "results"
    (good, other), specs = Store(results).rows()[:2], named_grid("table1")[:2]
    store, aside = Store(tmp_path), 0
    for wrong in wrong_in(good):
        (tmp_path / "rows.jsonl").write_text(f"{json.dumps(wrong)}\n{json.dumps(other)}\n")
        rows = store.rows()
        assert rows[-1] == other
        assert len(rows) + len(store.torn()) == 2
        assert other["key"] in rows_by_key(rows)
        GridProgress(missing(specs, store), rows)
        aside += len(store.torn())
    assert aside > 50
