"""What the commands say: help, refusals before any work, the summary, the command to run next."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from forked import forked
from own_data_helpers import AT_ONCE, tolerant, write_table
from train_helpers import table

from tolerant import __version__, find_suspects
from tolerant.cli import main
from tolerant.cli.summary import print_suspects
from tolerant.hints import warn_caller
from tolerant.suspects import RateInterval


@pytest.fixture
def untrained(monkeypatch):
    """Fails the test if anything is trained."""

    def learn(*_: Any, **__: Any) -> None:
        raise AssertionError("trained before the refusal")

    monkeypatch.setattr("tolerant.own_data.train_source.learn", learn)


def test_what_cannot_be_written_is_refused_before_training(untrained, tmp_path):
    write_table(tmp_path / "data.csv")
    (tmp_path / "a file").write_text("")
    with pytest.raises(FileExistsError, match=r"cannot write to the folder .*a file: it is a file"):
        tolerant("train", tmp_path / "data.csv", "--ignore", "key", "--out", tmp_path / "a file")


def test_rows_with_one_name_are_refused_before_training(untrained, tmp_path):
    write_table(tmp_path / "data.csv")
    with pytest.raises(ValueError, match=r"ids must all be different.*got 'Ulm' twice.*--id"):
        tolerant("train", tmp_path / "data.csv", "--id", "town", "--ignore", "key", "--out", tmp_path / "r")


def test_the_demo_needs_a_folder_before_it_trains(tmp_path, monkeypatch):
    monkeypatch.setattr("tolerant.cli.demo._train", lambda *_: pytest.fail("it trains"))
    (tmp_path / "demo").write_text("")
    with pytest.raises(OSError, match="demo: it is a file"):
        tolerant("demo", "--out", tmp_path / "demo")


def test_a_device_nobody_knows(tmp_path):
    write_table(tmp_path / "data.csv")
    with pytest.raises(ValueError, match="device must be 'auto', 'cpu' or 'cuda'; got 'gpu'"):
        tolerant("train", tmp_path / "data.csv", "--id", "key", "--device", "gpu", "--out", tmp_path / "r")


def test_the_command_says_what_it_is_for():
    assert "labels that are partly wrong" in tolerant("--help")
    assert tolerant("--version") == f"tolerant {__version__}\n"


def test_any_label_can_be_printed_and_nobody_need_listen(tmp_path):
    """A terminal of another encoding, and a scheduler that closes standard error."""
    with (tmp_path / "rows.csv").open("w", encoding="utf-8") as file:
        file.write("a,label\n")
        file.writelines(f"{row},{'猫' if (row < 30) ^ (row % 9 == 0) else 'dog'}\n" for row in range(60))

    def work() -> None:
        os.chdir(tmp_path)
        os.close(2)
        sys.stderr = None  # as Python has it where there is none
        sys.stdout = open(1, "w", encoding="ascii", closefd=False)  # noqa: SIM115
        sys.argv = ["tolerant", "train", "rows.csv", *AT_ONCE]
        main()

    done = forked(work)
    assert done.returncode == 0
    assert "\\u732b" in done.stdout


def test_the_next_command_goes_to_the_folder_that_was_given(trained, tmp_path, monkeypatch):
    said = tolerant("audit", trained / "run").replace("\n", " ")
    assert f"--labels corrections.csv --out {trained / 'run'}" in said
    monkeypatch.chdir(trained)
    assert "--out" not in tolerant("audit", "run"), "the default of train"


def test_the_next_command_keeps_what_was_chosen(tmp_path):
    write_table(tmp_path / "rows.csv", num_rows=60)
    options = ("--loss", "lq", "--epochs", "2", "--folds", "0")
    said = tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", *options)
    command = said.replace("\n", " ").split("corrections: ")[1]
    assert f"--out {tmp_path / 'run'} --loss lq --epochs 2 --folds 0 Label new rows" in command
    assert "--seed" not in command


@pytest.mark.parametrize(
    ("num_rows", "num_doubted", "said"),
    [
        (49, 9, ["no evidence yet"]),
        (50, 9, []),
        (60, 30, []),
        (60, 31, ["too weak to judge"]),
    ],
)
def test_a_list_that_means_little_says_so(num_rows, num_doubted, said, tmp_path, capsys):
    probs = np.tile([0.9, 0.1], (num_rows, 1))
    suspects = find_suspects((np.arange(num_rows) < num_doubted).astype(int), probs)
    print_suspects(suspects, tmp_path, "tolerant train rows.csv")
    output = capsys.readouterr().out
    assert [words for words in ("no evidence yet", "too weak to judge") if words in output] == said


def test_the_command_for_a_sample_can_be_pasted_and_one_row_is_one(tmp_path, capsys):
    suspects = find_suspects((np.arange(60) < 1).astype(int), np.tile([0.9, 0.1], (60, 1)))
    print_suspects(suspects.with_lower_bound(), tmp_path / "my run", "tolerant train rows.csv")
    output = capsys.readouterr().out
    assert f"tolerant audit '{tmp_path / 'my run'}' --sample 100" in output
    assert "; 1 row looks like another class." in output


@pytest.mark.parametrize(
    ("rate", "said"),
    [
        (RateInterval(0.2, 0.1, 0.3), "About 20 % of the labels are wrong (between 10 % and 30 %); 1 row"),
        (RateInterval(0.2, 0.0, 0.5), "Between 0 % and 50 % of the labels are wrong; 1 row"),
        (RateInterval(0.2, 0.1, 0.3, at_least=True), "At least 20 % of the labels are wrong; 1 row"),
        (RateInterval(0.0001, 0, 0, at_least=True), "How many of the labels are wrong does not show; 1 row"),
    ],
)
def test_how_many_labels_are_wrong_is_said_as_far_as_it_is_known(rate, said, tmp_path, capsys):
    suspects = find_suspects((np.arange(60) < 1).astype(int), np.tile([0.9, 0.1], (60, 1)))
    print_suspects(replace(suspects, noise_rate=rate), tmp_path, "tolerant train rows.csv")
    assert said in capsys.readouterr().out


def test_a_label_cannot_steer_the_terminal(tmp_path):
    """Titles, colours and the direction of a line are shown as escapes, in tables, lines and warnings."""
    steering = "\x1b]0;owned\x07\x1b[31mred\u202e"
    data = table(60, noise_rate=0.3)
    names = [f"{name}{steering}" for name in data.class_names]
    lines = ["key,a,b,label"]
    lines += [
        f"row{row}{steering},{x[0]},{x[1]},{names[label]}"
        for row, (x, label) in enumerate(zip(data.inputs, data.given_labels, strict=True))
    ]
    (tmp_path / f"rows{steering[:9]}.csv").write_text("\n".join(lines), "utf-8")
    rows = (tmp_path / f"rows{steering[:9]}.csv", "--id", "key")
    said = tolerant("train", *rows, *AT_ONCE, "--out", tmp_path / "run")
    said += tolerant("predict", tmp_path / "run", *rows, "--out", tmp_path / "p.csv")
    assert "\\x1b[31mred" in said.replace("\n", "")
    assert not set(said) & set("\x1b\x07\u202e")
    with pytest.warns(UserWarning, match=r"a\\x1b\[31m"):
        warn_caller("a\x1b[31m")


def test_a_refusal_does_not_quote_a_whole_book(tmp_path, monkeypatch, capsys):
    (tmp_path / "rows.csv").write_text("a,label\n" + "1,x\n2,y\n" * 20 + f"3,{'z' * 50_000}\n")
    monkeypatch.setattr(sys, "argv", ["tolerant", "train", str(tmp_path / "rows.csv"), "--label", "label"])
    with pytest.raises(SystemExit, match="2"):
        main()
    said = capsys.readouterr().err
    assert len(said) < 5000
    assert said.endswith("or pass min_per_class=1 (--min-per-class 1)\n")


def test_ctrl_c_before_anything_has_begun_is_quiet(monkeypatch, capsys):
    """The commands are still being imported, which takes a second."""
    monkeypatch.setattr("tolerant.cli.make_app", lambda: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""
