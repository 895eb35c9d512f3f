"""Reports from synthetic rows: the right numbers, in words, files and pictures."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from typer import Typer
from typer.testing import CliRunner

from tolerant.cli.report import report
from tolerant.experiment import Store
from tolerant.report import figure
from tolerant.report.comparison import (
    Line,
    Summary,
    difference_margin,
    legend,
    lines,
    summary,
    table_text,
    to_csv,
)
from tolerant.report.document import brief_table1, fill, gains
from tolerant.report.selection import select

EPOCHS = 6
HISTORY = {
    "test_accuracy": [0.1 * e for e in range(1, EPOCHS + 1)],
    "validation_loss": [2.0 - 0.1 * e for e in range(EPOCHS)],
    "p_y_right": [None, 0.3, None, 0.5, None, 0.6],
    "p_y_wrong": [None, 0.1, None, 0.1, None, 0.2],
    "kept_fraction": [1.0, 1.0, 1.0, 0.6, 0.6, 0.65],
    "prune_precision": [None, None, None, 0.95, 0.95, 0.96],
    "prune_recall": [0.0, 0.0, 0.0, 0.9, 0.9, 0.92],
}


def add(store: Store, accuracy: float, **values: Any) -> None:
    """Store a row like those that `run` writes."""
    seed, version = values.pop("seed", 0), values.pop("version", 1)
    spec = {
        "dataset": "cifar10",
        "model": "resnet34",
        "model_args": {},
        "loss": "cce",
        "loss_args": {},
        "noise": "uniform",
        "noise_rate": 0.4,
        "transition": "none",
        "prune": None,
        "recipe": {"epochs": EPOCHS, "seed": seed},
        "protocol": "gce2018-table1",
        **values,
    }
    key = f"{len(store.rows()):016x}"
    row = {
        "key": key,
        "spec": spec,
        "result": {
            "noisy_validation": {"epoch": 3, "test_accuracy": accuracy},
            "last_epoch": {"epoch": 5, "test_accuracy": accuracy - 0.05},
            "best_test": {"epoch": 4, "test_accuracy": accuracy + 0.01},
        },
        "history": store.write_history(key, HISTORY),
        "time_s": 120.0,
        "device_s": 60.0,
        "hardware": "H200",
        "versions": {"training": version},
        "finished": f"2026-01-01T00:00:{len(store.rows()):02d}Z",
    }
    assert store.append(row)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "results")
    prune = {"start_epoch": 3, "every": 1, "k": 0.5}
    for seed, accuracy in enumerate((0.81, 0.82, 0.83)):
        add(store, accuracy, seed=seed)
    add(store, 0.80, loss="lq", loss_args={"q": 0.7})
    add(store, 0.874, loss="lq", loss_args={"q": 0.7}, prune=prune)
    add(store, 0.2, protocol="gce2018-table1 epochs=2")
    add(store, 0.6, protocol="gce2018-table2", noise="open-set")
    add(store, 0.9, protocol="gce2018-cifar-n", dataset="cifar10n-worse", noise="human")
    for rate, noise in ((0.0, "none"), (0.4, "uniform")):
        for loss, args in (("cce", {}), ("mae", {}), ("lq", {"q": 0.7}), ("lq", {"q": 0.2})):
            values = {"loss": loss, "loss_args": args, "noise": noise, "noise_rate": rate}
            add(store, 0.7, protocol="gce2018-adam", **values)
    return store


def test_the_table_has_our_numbers_beside_the_papers(store: Store) -> None:
    cce, lq, truncated = lines(select(store, "table1"), "table1")
    assert (cce.method, lq.method, truncated.method) == ("cce", "lq", "truncated-lq")
    assert cce.paper == Summary(81.88, 0.29, 5)
    assert (cce.main.mean, cce.main.std, cce.main.n) == pytest.approx((82.0, 1.0, 3))
    assert cce.difference == pytest.approx(0.12)
    assert (cce.agrees, lq.agrees, truncated.agrees) == (True, False, True)
    assert cce.ours["last_epoch"].mean == pytest.approx(77.0)
    assert cce.ours["best_test"].mean == pytest.approx(83.0)
    text = table_text([cce, lq])
    first, second = text.splitlines()[2:]
    assert first == (
        "| CIFAR-10 | uniform | 0.4 | CCE | 81.88 ± 0.29 | 82.00 ± 1.00 | +0.12 | ✓ | 3 | "
        "77.00 ± 1.00 | 83.00 ± 1.00 |"
    )
    assert "| −7.13 |  | 1 |" in second


def test_table_two_reports_the_last_epoch(store: Store) -> None:
    (line,) = lines(select(store, "table2"), "table2")
    assert line.main.mean == pytest.approx(55.0)
    assert line.agrees is None  # one run against a number without a spread
    assert line.paper == Summary(62.92, None, 1)  # from Wang et al., which is taken for one run
    assert legend([line]).endswith("a number that it took from others counts as one run.")


def test_table_two_has_five_runs_of_the_papers_own_methods(store: Store) -> None:
    """Section 4: "All reported experiments were repeated five times"."""
    add(store, 0.7, protocol="gce2018-table2", model="cnn8", noise="open-set", loss="lq")
    (line,) = (line for line in lines(select(store, "table2"), "table2") if line.method == "lq")
    assert line.paper == Summary(71.1, None, 5)


def test_csv_has_every_number(store: Store) -> None:
    read = list(csv.DictReader(io.StringIO(to_csv(lines(select(store, "table1"), "table1")))))
    assert len(read) == 3
    assert float(read[0]["noisy_validation_mean"]) == pytest.approx(82.0)
    assert float(read[0]["paper_std"]) == 0.29
    assert read[0]["agrees"] == "True"
    assert [row["runs"] for row in read] == ["3", "1", "1"]
    # Welch, t at 2.20 degrees of freedom: (1/3 + 0.29^2/5)^2 / ((1/3)^2/2 + (0.29^2/5)^2/4)
    assert float(read[0]["margin_95"]) == pytest.approx(2.3329, abs=1e-4)
    assert float(read[0]["difference"]) == pytest.approx(0.12, abs=1e-4)
    assert float(read[2]["noisy_validation_mean"]) == pytest.approx(87.4)


def test_lines_come_in_the_papers_order(tmp_path: Path) -> None:
    store = Store(tmp_path / "results")
    places = [
        ("fashion-mnist", "class-dependent", 0.1, "cce"),
        ("cifar10", "uniform", 0.2, "cce"),
        ("cifar10", "uniform", 0.2, "mae"),
        ("cifar10", "uniform", 0.2, "js"),  # what the paper does not have comes last
        ("cifar10", "uniform", 0.8, "cce"),
        ("cifar10", "class-dependent", 0.1, "cce"),
        ("cifar10", "circular", 0.1, "cce"),
        ("cifar100", "uniform", 0.2, "cce"),
        ("own", "uniform", 0.2, "cce"),
    ]
    for dataset, noise, rate, loss in reversed(places):
        add(store, 0.5, dataset=dataset, noise=noise, noise_rate=rate, loss=loss)
    table = lines(select(store, "table1"), "table1")
    assert [(line.dataset, line.noise, line.rate, line.method) for line in table] == places


def test_a_rule_that_not_all_runs_have_is_left_out(store: Store) -> None:
    """Runs on all rows have no validation: their last epoch stands in its place."""
    rows = [row for row in select(store, "table1") if row["spec"]["loss"] == "cce"]
    del rows[0]["result"]["noisy_validation"]
    (line,) = lines(rows, "table1")
    assert set(line.ours) == {"last_epoch", "best_test"}
    assert line.main == line.ours["last_epoch"]


def test_labels_by_people_have_no_rate_and_no_number_of_the_papers(store: Store) -> None:
    table = lines(select(store, "cifar-n"), "cifar-n")
    head, _, row = table_text(table).splitlines()
    assert head.startswith("| data set | noise | method | ours: noisy validation | runs | last epoch |")
    assert row.startswith("| CIFAR-10N worse | human | CCE | 90.00 | 1 | 85.00 |")
    assert "✓" not in legend(table)


def test_the_legend_says_what_a_single_run_is_held_against(store: Store) -> None:
    cce, lq, _ = lines(select(store, "table1"), "table1")
    assert legend([cce]).endswith("covers zero.")
    assert "for one run of ours, a prediction interval" in legend([cce, lq])


def test_changed_runs_stay_apart(store: Store) -> None:
    assert len(lines(select(store, "table1", changed="epochs=2"), "table1")) == 1
    every = lines(select(store, "table1", changed="all"), "table1")
    assert [line.main.n for line in every] == [3, 1, 1, 1]
    assert table_text(every).splitlines()[-1].endswith("| epochs=2 |")


def test_of_two_rows_of_one_spec_the_newer_training_code_counts(store: Store) -> None:
    add(store, 0.5, version=2)
    cce = lines(select(store, "table1"), "table1")[0]
    assert cce.main.n == 3
    assert cce.main.mean == pytest.approx((50 + 82 + 83) / 3)
    add(store, 0.4, version=1, loss_args={"q": None})  # a row of old code, copied here later
    assert lines(select(store, "table1"), "table1")[0] == cce


def test_a_row_from_before_a_spec_got_a_value_is_no_second_seed(store: Store) -> None:
    add(store, 0.5, version=2, recipe={"epochs": EPOCHS, "seed": 0, "compile": False})
    cce = lines(select(store, "table1"), "table1")[0]
    assert (cce.main.n, cce.main.mean) == (3, pytest.approx((50 + 82 + 83) / 3))


def test_changes_are_found_in_any_order_and_named_where_they_are_not(store: Store) -> None:
    add(store, 0.3, protocol="gce2018-table1 epochs=2,lr=0.1")
    assert len(select(store, "table1", changed="lr=0.1, epochs=2")) == 1
    said = cli("table1", "--results", str(store.folder), "--changed", "lr=0.2").output
    assert said.endswith("\n  --changed epochs=2\n  --changed epochs=2,lr=0.1\n")


def test_a_row_copied_without_its_history_is_named(store: Store) -> None:
    for path in (Path(store.folder) / "history").iterdir():
        path.unlink()
    with pytest.raises(FileNotFoundError, match="must copy its history, too"):
        figure.figure1(store, select(store, "figure1"))


def test_rows_of_several_training_versions_are_said(store: Store) -> None:
    assert "versions" not in cli("table1", "--results", str(store.folder)).output
    add(store, 0.5, version=2)
    said = cli("table1", "--results", str(store.folder)).output
    assert said.endswith("of H200; training code of versions 1 and 2.\n")
    add(store, 0.7, version=2, protocol="gce2018-adam", noise="none", noise_rate=0.0)
    drawn = figure.figure1(store, select(store, "figure1"))
    assert drawn.get_suptitle() == "Figure 1 · 1 seed · training code of versions 1 and 2"


@pytest.mark.parametrize(
    ("ours", "paper", "margin"),
    [
        # Two samples with equal n and spread: t(8) * sqrt(2 / 5), t(8) = 2.306.
        (Summary(0.0, 1.0, 5), Summary(0.0, 1.0, 5), 1.4584),
        # One run predicted from five: t(4) * sqrt(1 + 1 / 5), t(4) = 2.776.
        (Summary(0.0, None, 1), Summary(0.0, 1.0, 5), 3.0414),
        # No spread in the paper: t(2) * sqrt(1 / 3 + 1), t(2) = 4.303.
        (Summary(0.0, 1.0, 3), Summary(0.0, None, 1), 4.9684),
        (Summary(0.0, 0.0, 3), Summary(0.0, 0.0, 5), 0.0),
        (Summary(0.0, None, 1), Summary(0.0, None, 1), None),
    ],
)
def test_the_interval(ours: Summary, paper: Summary, margin: float | None) -> None:
    got = difference_margin(ours, paper)
    assert got == (margin if margin is None else pytest.approx(margin, abs=1e-3))

    def agrees(mean: float) -> bool | None:
        own = {"last_epoch": Summary(mean, ours.std, ours.n)}
        return Line("", "", "", 0.0, "", "", "last_epoch", paper, own).agrees

    assert agrees(0.0) is (None if margin is None else True)
    if margin:
        assert agrees(margin * 1.01) is False


def test_a_mean_needs_a_number() -> None:
    with pytest.raises(ValueError, match="at least one"):
        summary([])


def boxes_of(drawn: Any) -> list[Any]:
    """The title, the legend, and each panel with all its labels and its own legend, as boxes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    parts = [*drawn.axes, *drawn.legends, drawn._suptitle]
    return [part.get_tightbbox(canvas.get_renderer()) for part in parts]


def test_a_cell_far_from_the_paper_leaves_its_panel_with_a_number(store: Store) -> None:
    add(store, 0.5, dataset="cifar10", noise="uniform", noise_rate=0.4, loss="mae")
    (line,) = [line for line in lines(select(store, "table1"), "table1") if line.method == "mae"]
    drawn = figure.differences([line], "table1")
    (axis,) = drawn.axes
    assert line.difference is not None
    assert axis.get_ylim() == (-6, 6)
    assert [text.get_text() for text in axis.texts] == [f"−{abs(line.difference):.1f}"]


def test_the_legend_has_the_papers_order_whatever_is_drawn_first(store: Store) -> None:
    add(store, 0.9, dataset="fashion-mnist", loss="lq", loss_args={"q": 0.7})  # the first panel
    drawn = figure.differences(lines(select(store, "table1"), "table1"), "table1")
    assert [text.get_text() for text in drawn.legends[0].texts] == ["CCE", "$L_q$", "Truncated $L_q$"]


@pytest.mark.parametrize("name", ["figure1", "figure2", "pruning", "table1", "changed", "nothing"])
def test_no_part_overlaps_or_leaves_the_picture(store: Store, name: str) -> None:
    if name == "pruning":
        pruned = {"loss": "lq", "prune": {"start_epoch": 3, "every": 1, "k": 0.5}}
        for rate in (0.2, 0.4, 0.6, 0.8):
            add(store, 0.9, **pruned, dataset="fashion-mnist", noise="class-dependent", noise_rate=rate)
        for dataset in ("cifar10n-aggre", "cifar10n-worse", "cifar100n"):
            add(store, 0.9, **pruned, protocol="gce2018-cifar-n", dataset=dataset, noise="human")
        drawn = figure.pruning(store, select(store, "table1") + select(store, "cifar-n"))
    elif name == "table1":
        drawn = figure.differences(lines(select(store, "table1"), "table1"), "table1")
    elif name == "changed":  # a picture of one panel, and a caption that is longer than it
        changes = "batch_norm_momentum=0.01,epochs=2,model.init=he,weight_decay=0.001"
        add(store, 0.9, protocol=f"gce2018-table1 {changes}")
        drawn = figure.differences(lines(select(store, "table1", changed=changes), "table1"), "table1")
    elif name == "nothing":
        drawn = figure.figure1(store, [])
    else:
        drawn = getattr(figure, name)(store, select(store, name))
    boxes = boxes_of(drawn)
    frame = drawn.bbox
    for number, box in enumerate(boxes):
        assert box.x0 >= -1, box
        assert box.y0 >= -1, box
        assert box.x1 <= frame.x1 + 1, box
        assert box.y1 <= frame.y1 + 1, box
        for other in boxes[number + 1 :]:
            across = min(box.x1, other.x1) - max(box.x0, other.x0)
            down = min(box.y1, other.y1) - max(box.y0, other.y0)
            assert across <= 1 or down <= 1


def test_curves_are_the_stored_columns(store: Store) -> None:
    a, b, c = figure.figure1(store, select(store, "figure1")).axes
    assert [line.get_label() for line in a.lines] == ["CCE", "MAE"]
    assert list(a.lines[0].get_ydata()) == pytest.approx([10, 20, 30, 40, 50, 60])
    assert not b.lines
    assert len(c.lines) == 4
    assert list(c.lines[0].get_xdata()) == [2, 4, 6]  # only the measured epochs
    assert list(c.lines[1].get_ydata()) == pytest.approx([0.1, 0.1, 0.2])


def test_the_panels_of_figure_2_say_what_they_hold(store: Store) -> None:
    rows = select(store, "figure2")
    drawn = figure.figure2(store, rows)
    assert [axis.get_title("left") for axis in drawn.axes] == [
        f"({letter}) noise rate {rate}" for letter, rate in zip("abcdef", [0, 0.2, 0.6] * 2, strict=True)
    ]
    others = [{**row, "spec": {**row["spec"], "dataset": "cifar100"}} for row in rows]
    assert [len(axis.lines) for axis in figure.figure2(store, others).axes] == [0] * 6
    assert any(axis.lines for axis in drawn.axes)


def cli(*arguments: str) -> Any:
    app = Typer()
    app.command()(report)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_writes_the_three_forms(store: Store, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = cli("table1", "--results", str(store.folder), "--out", str(out))
    assert result.exit_code == 0, result.output
    assert "5 runs, 5.0 minutes of H200" in result.output
    lines = [line for line in result.output.splitlines() if line.startswith("| ")]
    assert len({cell_len(line) for line in lines}) == 1  # columns one below the other
    assert sorted(path.name for path in out.iterdir()) == ["table1.csv", "table1.md", "table1.png"]
    assert (out / "table1.png").read_bytes().startswith(b"\x89PNG")
    assert cli("cifar-n", "--results", str(store.folder)).output.count("CIFAR-10N worse") == 1
    result = cli("pruning", "--results", str(store.folder), "--out", str(out))
    assert str(out / "pruning.png") in result.output
    assert (out / "pruning.png").read_bytes().startswith(b"\x89PNG")


def test_a_missing_folder_or_name_is_said(tmp_path: Path) -> None:
    result = cli("table1", "--results", str(tmp_path / "none"))
    assert result.exit_code == 2
    assert "there is no folder" in result.output
    result = cli("--results", str(tmp_path))
    assert result.exit_code == 2
    assert "name one of " in result.output


def test_a_document_is_filled_and_filling_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    docs = tmp_path / "docs" / "reproduction.md"
    docs.parent.mkdir()
    names = ["table1", "figure1", "figure2", "pruning", "table1-differences", "cifar-n"]
    docs.write_text("".join(f"# x\n<!-- report: {n} -->\n<!-- end -->\nkept\n" for n in names))
    assert cli("--docs", str(docs), "--results", str(store.folder)).exit_code == 0
    once = docs.read_text()
    assert once.count("kept") == len(names)
    assert "82.00 ± 1.00" in once
    assert "](figures/figure2.png)" in once
    assert (docs.parent / "figures" / "table1.png").exists()
    assert cli("--docs", str(docs), "--results", str(store.folder)).exit_code == 0
    assert docs.read_text() == once


def test_gains_of_pruning_are_those_of_the_same_seeds(store: Store) -> None:
    def told() -> list[str]:
        return gains(select(store, "table1"), "table1").splitlines()[2:]

    lq = {"loss": "lq", "loss_args": {"q": 0.7}}
    cell = "| CIFAR-10 | uniform | 0.4 | 0.5 |"
    assert told() == [f"{cell} 7.4 | 7.4 | 7.4 |"]
    add(store, 0.9, **lq, seed=1)  # the other method has no such run
    assert told() == [f"{cell} 7.4 | 7.4 | 7.4 |"]
    add(store, 0.888, **lq, seed=1, prune={"start_epoch": 3, "every": 1, "k": 0.5})
    assert told()[0].startswith(f"{cell} 3.1 ± 6.1 (7.4, −1.2) |")
    assert gains([], "table1") == "No stored rows yet."


def test_the_short_table_has_a_line_for_each_cell(store: Store) -> None:
    add(store, 0.99, loss="cce", transition="estimated")  # a method it does not show
    add(store, 0.86, loss="cce", transition="true")
    text = brief_table1(select(store, "table1"), select(store, "cifar-n"))
    text = text.replace("\N{NO-BREAK SPACE}", " ")
    cells = "82.00 ± 1.00 (81.88 ± 0.29) | 86.00 (85.07 ± 0.29) | 80.00 (87.13 ± 0.22) | 87.40 (87.62 ± 0.26)"
    assert f"| CIFAR-10 | uniform | 0.4 | {cells} | 1 to 3 |" in text
    assert "| CIFAR-10N worse | human |  | 90.00 |  |  |  | 1 |" in text
    assert text.endswith("Of the 144 cells of the paper's table, 5 have a run. 7 runs, 7.0 minutes of H200.")
    assert brief_table1([], []) == "No stored rows yet."


def test_fill_leaves_other_text_alone() -> None:
    text = "a\n<!-- other -->\nb\n<!-- end -->\n"
    assert fill(text, lambda name, changed: "x") == text
    marked = "a\n<!-- report: bench-prune -->\nb\n<!-- end -->\n"
    assert fill(marked, lambda name, changed: None) == marked


def test_a_block_can_name_a_changed_protocol(tmp_path: Path) -> None:
    other = Store(tmp_path / "results")
    add(other, 0.9, protocol="gce2018-table1 epochs=2")
    docs = tmp_path / "page.md"
    marks = ("table1", "table1 epochs=2", "table1 epochs=3")
    docs.write_text("".join(f"<!-- report: {mark} -->\n<!-- end -->\n" for mark in marks))
    assert cli("--docs", str(docs), "--results", str(other.folder)).exit_code == 0
    plain, changed, absent, _ = docs.read_text().split("<!-- end -->")
    assert "90.00" in changed
    assert "No stored rows yet." in plain
    assert "No stored rows yet." in absent


def test_rows_of_a_changed_protocol_are_mentioned(tmp_path: Path) -> None:
    other = Store(tmp_path / "results")
    add(other, 0.9, protocol="gce2018-table1 epochs=2")
    said = cli("table1", "--results", str(other.folder)).output
    assert "No stored rows yet." in said
    assert "Rows of a changed protocol: 1; --changed all shows them." in said


def test_a_run_that_never_pruned_is_drawn_without_its_precision(store: Store) -> None:
    """One epoch, or none pruned: the column is not stored, and figures must do without."""
    rows = [row for row in select(store, "table1") if row["spec"]["prune"]]
    lacking = {name: v for name, v in HISTORY.items() if name not in ("prune_precision", "validation_loss")}
    store.write_history(rows[0]["key"], lacking)
    precision, recall, _ = figure.pruning(store, rows).axes
    assert (len(precision.lines), len(recall.lines)) == (0, 1)


def test_pruning_tells_kinds_of_noise_apart_and_labels_by_people_by_data_set(store: Store) -> None:
    pruned = {"loss": "lq", "prune": {"start_epoch": 3, "every": 1, "k": 0.5}}
    add(store, 0.9, **pruned, noise="class-dependent")
    for dataset in ("cifar10n-worse", "cifar100n"):
        add(store, 0.9, **pruned, protocol="gce2018-cifar-n", dataset=dataset, noise="human", noise_rate=0.0)
    drawn = figure.pruning(store, select(store, "table1") + select(store, "cifar-n"))
    cifar10, people = drawn.axes[0], drawn.axes[3]
    assert [axis.get_title(loc="left") for axis in (cifar10, people)] == ["CIFAR-10", "Labels by people"]
    assert [line.get_label() for line in cifar10.lines] == ["uniform 0.4", "class-dependent 0.4"]
    assert [line.get_label() for line in people.lines] == ["CIFAR-10N worse", "CIFAR-100N"]
    for axis in (cifar10, people):
        looks = {(line.get_color(), line.get_linestyle()) for line in axis.lines}
        assert len(looks) == len(axis.lines) == 2


def test_one_epoch_is_a_point_that_can_be_seen(store: Store) -> None:
    rows = select(store, "figure1")
    for row in rows:
        store.write_history(row["key"], {name: values[1:2] for name, values in HISTORY.items()})
    assert {line.get_marker() for line in figure.figure1(store, rows).axes[0].lines} == {"o"}


def test_a_caption_counts_the_seeds_that_are_drawn(store: Store) -> None:
    for seed in (1, 2):  # of figure 2 alone
        clean = {"protocol": "gce2018-adam", "noise": "none", "noise_rate": 0.0}
        add(store, 0.7, seed=seed, loss="lq", loss_args={"q": 0.2}, **clean)
        add(store, 0.8, seed=seed, loss="lq", loss_args={"q": 0.7})  # of table 1, not pruned
    rows = select(store, "figure1")
    assert figure.figure1(store, rows).get_suptitle() == "Figure 1 · 1 seed"
    assert figure.figure2(store, rows).get_suptitle().endswith(" · 1 to 3 seeds")
    assert figure.pruning(store, select(store, "table1")).get_suptitle() == "Pruning · 1 seed"


def test_changed_runs_are_never_drawn_as_if_unchanged(store: Store, tmp_path: Path) -> None:
    prune = {"start_epoch": 1, "every": 1, "k": 0.5}
    add(store, 0.3, protocol="gce2018-table1 epochs=2", loss="lq", loss_args={"q": 0.7}, prune=prune)
    add(store, 0.3, protocol="gce2018-adam epochs=2", noise="none", noise_rate=0.0)
    every = ["--results", str(store.folder), "--changed", "all", "--out", str(tmp_path / "out")]
    for name in ("figure1", "pruning"):
        said = cli(name, *every)
        assert said.exit_code == 2
        assert "a picture can show only one of '', 'epochs=2'" in said.output
    assert "no picture: a picture can show only one of '', 'epochs=2'" in cli("table1", *every).output
    assert [path.suffix for path in sorted((tmp_path / "out").iterdir())] == [".csv", ".md"]
    rows = select(store, "table1", changed="epochs=2")
    for drawn in (figure.differences(lines(rows, "table1"), "table1"), figure.pruning(store, rows)):
        assert drawn.get_suptitle().endswith(" · changed: epochs=2")


@pytest.mark.parametrize("name", ["figure1", "figure2", "pruning"])
def test_a_figure_without_rows_is_said_and_not_drawn(tmp_path: Path, name: str) -> None:
    other = Store(tmp_path / "results")
    protocol = "gce2018-table1" if name == "pruning" else "gce2018-adam"
    add(other, 0.9, protocol=f"{protocol} epochs=2")
    said = cli(name, "--results", str(other.folder), "--out", str(tmp_path / "out"))
    assert said.exit_code == 0
    assert "No stored rows yet." in said.output
    assert "Rows of a changed protocol: 1; --changed all shows them." in said.output
    assert not (tmp_path / "out").exists()


def test_rounds_stand_beside_the_papers_method_and_what_others_published(tmp_path: Path) -> None:
    other = Store(tmp_path / "results")
    prune = {"start_epoch": 3, "every": 1, "k": 0.5}
    worse = {"dataset": "cifar10n-worse", "noise": "human", "noise_rate": 0.0}
    add(other, 0.82, loss="lq", prune=prune, protocol="gce2018-cifar-n", **worse)
    two = [{"loss": "lq", "prune": None}, {"loss": "cce", "prune": None}]
    for seed, accuracy in enumerate((0.91, 0.93)):
        add(other, accuracy, rounds=two, protocol="rounds", seed=seed, **worse)
    said = cli("rounds", "--results", str(other.folder)).output.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(
        r"CIFAR-10N worse +\| human +\| +\| +82\.00 \(60 s\) \| +92\.00 ± 1\.41 \(60 s\) \|", said
    )
    assert "DivideMix 93.1" in said
    assert cli("rounds-cost", "--results", str(other.folder), "--out", str(tmp_path)).exit_code == 0
    assert (tmp_path / "rounds-cost.png").stat().st_size > 5000
