"""What spreadsheets and other computers leave in files: blank rows, paths of Windows, NaN labels."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from own_data_helpers import read, tolerant, write_pictures, write_table, write_texts

from tolerant import find_suspects
from tolerant.data import Source, load
from tolerant.data.encoders.cells import as_dates, as_numbers
from tolerant.data.encoders.inputs import InputEncoder
from tolerant.data.encoders.times import as_times
from tolerant.data.readers.row_files import read_frame

ROWS = [("K01", "1,5", "blau", "ja"), ("K02", "2,5", "rot", "nein"), ("K03", "1,0", "rot", "ja")]


def as_excel(path, rows):
    text = "\r\n".join(";".join(row) for row in [("nr", "wert", "farbe", "label"), *rows])
    path.write_text(text + "\r\n", encoding="utf-8-sig", newline="")
    return path


@pytest.mark.parametrize("line", ["sep=;", '"sep=|"', "sep=\t", "SEP=;", "Sep=,,", '"sep=;";;'])
def test_a_first_line_that_says_the_separator_is_no_header(tmp_path, line):
    separator = line.strip('"')[4]
    rows = ['"a,1"|wert|label', '"0,5"|x|ja', '"0,7"|y|nein']
    text = "\n".join([line, *(row.replace("|", separator) for row in rows)])
    (tmp_path / "rows.csv").write_text(text, encoding="utf-8-sig")
    frame = read_frame(tmp_path / "rows.csv")
    assert list(frame.columns) == ["a,1", "wert", "label"]
    assert frame.wert.tolist() == ["x", "y"]
    assert frame.attrs["separator"] == separator


@pytest.mark.parametrize(
    ("cells", "separator", "numbers"),
    [
        (["$1,234.50", "-$3", "+$ 5"], ",", [1234.5, -3, 5]),
        (["1.234,50 €", "-3 €", "5€"], ";", [1234.5, -3, 5]),
        (["£5", "", "£7"], ",", [5, np.nan, 7]),
        (["$5", "€7", "$1"], ",", None),
        (["5$", "$7", "$1"], ",", None),
        (["$a", "$b", "$c"], ",", None),
    ],
)
def test_amounts_with_the_sign_of_one_currency_are_numbers(cells, separator, numbers):
    series = pd.Series(cells)
    series.attrs["separator"] = separator
    found = as_numbers(series, "paid")[0]
    np.testing.assert_array_equal(found, numbers)


@pytest.mark.parametrize(
    "cells",
    [
        ["31-Dec-2023", "01-jan-2024"],
        ["Dec 31, 2023", "January 1, 2024"],
        ["Dec 31 2023", "Jan 01 2024"],
        ["31 December 2023", "1 Jan 2024"],
        ["31-DEC-2023 00:00", "1-JAN-2024 00:00:00"],
        ["31 DECEMBER 2023", "1 Jan. 2024"],
    ],
)
def test_dates_with_english_months_are_days(cells):
    days, _ = as_dates(pd.Series(cells), "when")
    assert days.tolist() == [19722, 19723]
    for words in (["Dec 31", "May 2024"], ["Marble 3, 2024", "Mayor 4, 2024"]):
        assert as_dates(pd.Series(words), "when")[0] is None
    assert as_dates(pd.Series(["Sept 3, 2024", "Sep. 4, 2024"]), "when")[0].tolist() == [19969, 19970]
    with pytest.raises(ValueError, match=r"holds dates except for 1 cells .*Feb 30, 2024"):
        as_dates(pd.Series(["Feb 30, 2024", *["Jan 1, 2024"] * 9]), "when")


@pytest.mark.parametrize(
    ("cells", "hours"),
    [
        (["13:30", "7:05", "00:00", "24:00"], [13.5, 7 + 5 / 60, 0, 24]),
        (["13:30:15", "7:05:59.5", " 23:59 ", ""], [13.504167, 7.099861, 23.983333, np.nan]),
        (["1:30 PM", "12:30 am", "12:00 PM", "11:59:30\u202fpm"], [13.5, 0.5, 12, 23.991667]),
        (["8am", "8:15am", "N/A", "10 P.M."], [8, 8.25, np.nan, 22]),
    ],
)
def test_times_of_day_are_hours(cells, hours):
    np.testing.assert_allclose(as_times(pd.Series(cells), "at")[0], hours, atol=1e-6)


@pytest.mark.parametrize(
    "cells",
    [
        ["13:30", "24:01"],  # has elapsed, as have the next
        ["0:30", *["7:45"] * 50, "120:10:05"],
        ["13:30", "closed"],
        ["13:30", "1:30 PM"],
        ["13:60", "7:5"],
        ["16:9", "4:3"],
        ["13:30-14:00", "15:00-16:00"],
        ["13 PM", "0 AM"],
        ["8", "9"],
    ],
)
def test_what_is_no_time_of_day_is_a_word(cells):
    assert as_times(pd.Series(cells), "at")[0] is None


@pytest.mark.parametrize("cell", ["13:60", "7:30 PM", "at noon"])
def test_a_slip_among_times_of_day_is_named(cell):
    with pytest.raises(
        ValueError, match=rf"'at' holds times of day except for 1 cells \(first: '{cell}' in row 9"
    ):
        as_times(pd.Series([*["7:30"] * 9, cell]), "at")


def test_a_column_of_different_times_is_trained_on_and_predicted_from(tmp_path):
    """As words it said nothing, and a name of the rows was seen in it."""
    rng = np.random.default_rng(0)
    minutes = rng.permutation(1440)[:400]
    label = np.where((minutes > 360) & (minutes < 1200), "day", "night")
    start = [f"{minute // 60 % 12 or 12}:{minute % 60:02}{'AP'[minute // 720]}M" for minute in minutes]
    rows = pd.DataFrame({"start": start, "other": rng.normal(size=400), "label": label})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    run, out = tmp_path / "run", tmp_path / "p.csv"
    tolerant("train", tmp_path / "rows.csv", "--model", "trees", "--folds", 2, "--out", run)
    tolerant("predict", run, tmp_path / "rows.csv", "--out", out)
    assert (pd.read_csv(out).label == label).mean() > 0.95
    rows.start.iloc[:1].to_frame().assign(start="soon", other=0).to_csv(tmp_path / "new.csv", index=False)
    with pytest.raises(ValueError, match="'start' held times in training; now it holds words"):
        tolerant("predict", run, tmp_path / "new.csv", "--out", out)


def test_cells_that_are_no_numbers_are_said_to_be_alike():
    cells = pd.Series(["T", "T", *["0.5"] * 30])
    with pytest.raises(ValueError, match=r"except for 2 cells, all alike \(first: 'T' in row 0\)"):
        as_numbers(cells, "rain")


def test_blank_rows_are_left_out_and_the_others_keep_their_numbers(tmp_path):
    blank = ("", " ", "", "")
    path = as_excel(tmp_path / "rows.csv", [*ROWS, blank, *ROWS, blank, blank])
    with pytest.warns(UserWarning, match=r"3 of 9 rows are blank and left out \(first: row 3, counted"):
        data = load(path, ignore=["nr"])
    assert data.ids.tolist() == [0, 1, 2, 4, 5, 6]
    with pytest.warns(UserWarning, match="3 of 9 rows are blank"):
        rows = Source(str(path), {"ignore": ["nr"]}).load()
    encoder = InputEncoder.fit(rows)
    with pytest.warns(UserWarning, match="3 of 9 rows are blank"):
        new = Source(str(path)).read(encoder)
    assert new.ids.tolist() == [0, 1, 2, 4, 5, 6]


def test_a_row_of_one_filled_cell_and_a_blank_text_stay(tmp_path):
    rows = [*ROWS, ("", "", "", "ja"), ("", "", "", "nein")]
    assert len(read_frame(as_excel(tmp_path / "rows.csv", rows))) == 5
    (tmp_path / "texts.csv").write_text('text\n"a word"\n""\n"more"\n')
    assert len(pd.read_csv(tmp_path / "texts.csv")) == 3
    assert len(read_frame(tmp_path / "texts.csv")) == 3, "predictions stand beside the rows"


def test_a_column_called_label_in_capitals_has_the_labels(tmp_path):
    frame = pd.DataFrame({"size": [1.5, 2.5, 1.0, 2.0], "Label": ["x", "y", "x", "y"]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    said: list[str] = []
    found = Source(str(tmp_path / "rows.csv")).with_roles(said.append)
    assert (found.options, said) == ({"label": "Label"}, ["Column 'Label' has the labels: --label Label"])
    assert load(tmp_path / "rows.csv").class_names == ("x", "y")
    frame.assign(LABEL="z").to_csv(tmp_path / "rows.csv", index=False)
    with pytest.raises(ValueError, match=r"no column 'label'; .* Did you mean 'Label'\? Say which"):
        load(tmp_path / "rows.csv")


def test_ids_name_the_rows_though_the_sheet_has_blank_ones(tmp_path):
    write_table(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("," * 7 + "\n")
    with pytest.warns(UserWarning, match="1 of 201 rows are blank"):
        found = Source(str(tmp_path / "rows.csv")).with_roles(lambda line: None)
    assert found.options == {"id": "key"}


def test_words_that_differ_in_each_of_a_few_rows_are_names(tmp_path):
    write_table(tmp_path / "rows.csv", num_rows=30)
    said: list[str] = []
    found = Source(str(tmp_path / "rows.csv")).with_roles(said.append)
    assert found.options == {"id": "key"}
    write_table(tmp_path / "few.csv", num_rows=12)
    assert Source(str(tmp_path / "few.csv")).with_roles(said.append).options == {}


def test_a_list_made_on_windows_finds_its_pictures(tmp_path):
    write_pictures(tmp_path / "pictures")
    files = sorted((tmp_path / "pictures").rglob("*.png"))
    names = [str(file.relative_to(tmp_path)).replace("/", "\\") for file in files]
    listed = pd.DataFrame({"file": names, "label": [file.parent.name for file in files]})
    listed.to_csv(tmp_path / "list.csv", index=False)
    data = load(tmp_path / "list.csv")
    assert data.ids.tolist() == names
    assert data.files.tolist() == [str(file) for file in files]


def test_one_picture_is_labelled_and_not_trained_on(tmp_path):
    write_pictures(tmp_path / "pictures")
    tolerant("train", tmp_path / "pictures", "--out", tmp_path / "run", "--epochs", "2", "--folds", "0")
    one = next((tmp_path / "pictures").rglob("*.png"))
    said = tolerant("predict", tmp_path / "run", one, "--out", tmp_path / "one.csv")
    assert "1 rows labelled" in said
    assert [row["id"] for row in read(tmp_path / "one.csv")] == [one.name]
    with pytest.raises(ValueError, match=r"is one picture, which has no label .* Name the folder"):
        tolerant("train", one, "--out", tmp_path / "other")
    encoder = InputEncoder("text", (2,), ("x", "y"))
    with pytest.raises(ValueError, match="text"):
        Source(str(one)).read(encoder)


def test_a_label_that_one_row_spells_otherwise_is_pointed_out_before_it_is_refused(tmp_path):
    frame = pd.DataFrame({"a": np.arange(11) * 1.5, "label": [*["yes", "no"] * 5, "Yes"]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    with (
        pytest.warns(UserWarning, match="'Yes' and 'yes' count as different labels"),
        pytest.raises(ValueError, match="label 'Yes' has fewer than the 2 rows a class needs"),
    ):
        load(tmp_path / "rows.csv")


@pytest.mark.parametrize(("word", "warned"), [("NaN", True), ("#N/A", True), ("NA", False), ("none", False)])
def test_a_class_that_is_called_nothing_is_pointed_out(tmp_path, recwarn, word, warned):
    frame = pd.DataFrame({"a": np.arange(6) * 1.5, "label": ["x", "y", word] * 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    assert load(tmp_path / "rows.csv").num_classes == 3
    assert any("counts as a class like the others" in str(told.message) for told in recwarn) == warned


def test_the_list_of_suspects_opens_in_excel(tmp_path):
    probs = np.array([[0.9, 0.1], [0.2, 0.8], [0.9, 0.1]])
    for names, mark in ((("groß", "klein"), "\ufeff"), (("large", "small"), "")):
        find_suspects([1, 1, 0], probs, class_names=names).to_csv(tmp_path / "suspects.csv")
        text = (tmp_path / "suspects.csv").read_text(encoding="utf-8")
        assert text.startswith(f"{mark}rank,")
        assert pd.read_csv(tmp_path / "suspects.csv").given_label.tolist() == [names[1]]


def test_predictions_open_in_excel(tmp_path):
    write_texts(tmp_path / "texts.csv")
    path = tmp_path / "texts.csv"
    path.write_text(path.read_text(encoding="utf-8").replace("sport", "Fußball"), encoding="utf-8")
    alone = ("--model", "words", "--features", "none", "--folds", 2)
    tolerant("train", path, "--out", tmp_path / "run", *alone)
    tolerant("predict", tmp_path / "run", path, "--out", tmp_path / "found.csv")
    assert (tmp_path / "found.csv").read_text(encoding="utf-8").startswith("\ufeffid,label,")
    assert set(pd.read_csv(tmp_path / "found.csv").label) == {"weather", "Fußball"}


def test_all_rows_do_not_warn_twice(tmp_path):
    write_table(tmp_path / "rows.csv")
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("," * 7 + "\n")
    with pytest.warns(UserWarning, match="rows are blank") as told:
        tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", "--model", "linear", "--all-rows")
    assert sum("rows are blank" in str(one.message) for one in told) == 1
