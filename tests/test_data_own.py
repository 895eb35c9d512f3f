"""Your own data: pictures, tables, texts, arrays; and one clear sentence for what is wrong."""

from __future__ import annotations

import bz2
import datetime
import errno
import gzip
import io
import json
import lzma
import os
import warnings
import zipfile
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tolerant.data import InputEncoder, Source, TableEncoder, TextEncoder, load
from tolerant.data.encoders.cells import as_dates
from tolerant.data.encoders.columns import Column
from tolerant.data.readers import npz as npz_module
from tolerant.data.readers import pictures as pictures_module
from tolerant.data.readers.pictures import ImageFiles
from tolerant.data.readers.row_files import read_frame
from tolerant.files import read_json, write_json
from tolerant.review.page import columns_and_values


def picture(path: Path, seed: int = 0, size: tuple[int, int] = (6, 5), mode: str = "RGB") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(seed)
    shape = size if mode == "L" else (*size, 3)
    image = Image.fromarray(draw.integers(0, 256, shape, np.uint8))
    (image if image.mode == mode else image.convert(mode)).save(path)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    for number in range(3):
        picture(tmp_path / "pictures" / "cat" / f"{number}.png", seed=number)
        picture(tmp_path / "pictures" / "dog" / "deep" / f"{number}.png", seed=10 + number)
    return tmp_path / "pictures"


def test_folder(pictures: Path) -> None:
    data = load(pictures)
    assert data.class_names == ("cat", "dog")
    assert data.inputs.shape == (6, 6, 5, 3)
    assert data.ids.tolist()[2:4] == ["cat/2.png", "dog/deep/0.png"]
    assert data.given_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.true_labels is None
    expected = np.asarray(Image.open(pictures / "dog" / "deep" / "1.png"))
    assert np.array_equal(data.inputs[4], expected)


def test_folder_with_splits(pictures: Path) -> None:
    pictures.rename(pictures.parent / "train")
    data = load(pictures.parent, split="train")
    assert data.class_names == ("cat", "dog")
    with pytest.raises(ValueError, match=r"is divided into train .*: pass split='train'"):
        load(pictures.parent)
    with pytest.raises(ValueError, match="split 'test' is not a folder"):
        load(pictures.parent, split="test")


def test_broken_pictures_are_named_and_left_out(pictures: Path) -> None:
    whole = (pictures / "cat" / "0.png").read_bytes()
    (pictures / "cat" / "cut.png").write_bytes(whole[: len(whole) * 2 // 3])
    (pictures / "dog" / "empty.png").write_bytes(b"")
    (pictures / "dog" / "words.jpg").write_text("not a picture at all")
    Image.fromarray(np.full((6, 5), 4095, np.uint16)).save(pictures / "dog" / "deep12.png")
    Image.fromarray(np.zeros((6, 5), np.float32)).save(pictures / "dog" / "float.tif")
    with pytest.warns(UserWarning, match="5 of 11 pictures left out") as caught:
        data = load(pictures)
    message = str(caught[0].message)
    assert "cat/cut.png: damaged" in message
    assert "dog/empty.png: not a picture that Pillow reads" in message
    assert "dog/words.jpg: not a picture" in message
    assert "dog/deep12.png: black as 16-bit grey, with no value above 4095; stretch it" in message
    assert "dog/float.tif: mode F has no 8-bit meaning" in message
    assert data.given_labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert np.array_equal(data.inputs[3], np.asarray(Image.open(pictures / "dog/deep/0.png")))


def test_a_picture_that_unpacks_to_gigabytes_is_left_out(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    picture(pictures / "cat" / "large.png", size=(13, 10))
    with pytest.warns(UserWarning, match=r"large\.png: damaged .*decompression bomb"):
        assert len(load(pictures)) == 6


def test_a_class_of_broken_pictures_only(pictures: Path) -> None:
    (pictures / "fish").mkdir()
    (pictures / "fish" / "0.png").write_bytes(b"x")
    with (
        pytest.warns(UserWarning, match=r"fish/0\.png"),
        pytest.raises(ValueError, match="no picture of class 'fish' can be read"),
    ):
        load(pictures)


def test_a_listed_picture_without_a_name_is_said_to_be_a_folder(pictures: Path) -> None:
    listed = write(
        pictures / "x.csv", "file,label\ncat/0.png,a\ncat/1.png,a\ndog/deep/0.png,b\ndog/deep/1.png,b\n.,b\n"
    )
    with pytest.warns(UserWarning, match=r"1 of 5 pictures left out: \.: a folder"):
        load(listed)


def test_only_broken_pictures(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"no picture can be read \(first: a/x\.png: not a pict"):
        load(tmp_path)


def test_class_folder_without_pictures(pictures: Path) -> None:
    (pictures / "empty").mkdir()
    with pytest.raises(ValueError, match=r"class folder .*empty has no pictures; remove it"):
        load(pictures)
    (pictures / "another").mkdir()
    with pytest.raises(ValueError, match=r"class folders .*another, .*empty have no pictures; remove them"):
        load(pictures)


def test_names_that_are_no_utf8_are_readable(pictures: Path) -> None:
    """Of an archive packed on an old Windows: they could be loaded and trained on, but not written."""
    for name in ("cat", "caf\udce9"):
        for number in range(2):
            path = pictures / name / f"\udce9t\udce9{number}.png"
            path.parent.mkdir(exist_ok=True)
            picture(pictures / "new.png")
            (pictures / "new.png").rename(path)
    data = load(pictures)
    assert data.class_names == (r"caf\xe9", "cat", "dog")
    assert r"cat/\xe9t\xe90.png" in data.ids
    assert all(Path(file).is_file() for file in data.files)
    new = Source(str(pictures / "caf\udce9")).read(InputEncoder.fit(data))
    assert new.ids.tolist() == [r"\xe9t\xe90.png", r"\xe9t\xe91.png"]


def test_whatever_is_not_used_is_counted_by_reason(pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, secret = InputEncoder.fit(load(pictures)), pictures / "cat" / "secret"
    for path in ("cat/.ipynb_checkpoints/0.png", "cat/secret/0.png", "more/0.png"):
        picture((pictures.parent if path.startswith("more") else pictures) / path)
    for name in ("cat/notes.txt", "cat/.DS_Store", "cat/._0.png", "list.csv"):
        (pictures / name).write_text("no picture")
    (pictures / ".git").mkdir()
    (pictures / "dog" / "more").symlink_to(pictures.parent / "more", target_is_directory=True)
    (pictures / "dog" / "gone.png").symlink_to(pictures / "nowhere.png")
    os.mkfifo(pictures / "dog" / "pipe.png")
    scandir = os.scandir

    def without_permission(path: Any) -> Any:  # which root, who runs the tests somewhere, always has
        if Path(path) == secret:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", without_permission)
    for read in (lambda: load(pictures), lambda: Source(str(pictures)).read(encoder)):
        with pytest.warns(UserWarning, match="not all that lies in .* is used") as warned:
            assert len(read()) == 6
        (said,) = (str(one.message).partition("is used: ")[2] for one in warned)
        assert sorted(said.split("; ")) == [
            "1 folders that cannot be read, Permission denied (first: cat/secret)",
            "1 links to folders, which are followed only if they are a class (first: dog/more)",
            "1 links to nothing (first: dog/gone.png)",
            "1 pipes or devices, no files (first: dog/pipe.png)",
            "2 files that are no pictures by their ending (first: cat/notes.txt)",
            "2 hidden files (first: cat/.DS_Store)",
            "2 hidden folders (first: .git)",
        ]


def test_a_pipe_is_not_waited_for(pictures: Path, tmp_path: Path) -> None:
    for name in ("rows.csv", "rows.npz", "rows.parquet"):
        os.mkfifo(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name} is a pipe or a device, which is not read"):
            load(tmp_path / name)
    (tmp_path / "list.csv").write_text(
        "".join(
            f"{line}\n" for line in ("file,label", "pictures/cat/0.png,cat", "pictures/dog/deep/0.png,dog")
        )
        + "rows.csv,dog\n/dev/zero,dog\n"
    )
    with pytest.warns(UserWarning, match="2 of 4 pictures left out: rows.csv: a pipe or a device, no file"):
        assert len(load(tmp_path / "list.csv", file="file", min_per_class=1)) == 2


def test_class_folders_that_are_links_are_read_for_predictions_too(pictures: Path, tmp_path: Path) -> None:
    links = tmp_path / "links"
    links.mkdir()
    for folder in pictures.iterdir():
        (links / folder.name).symlink_to(folder, target_is_directory=True)
    data = load(links)
    rows = Source(str(links)).read(InputEncoder.fit(data))
    assert rows.ids.tolist() == data.ids.tolist()


def test_no_class_folders(tmp_path: Path) -> None:
    picture(tmp_path / "0.png")
    with pytest.raises(ValueError, match="has no sub-folders; it needs one per class"):
        load(tmp_path)
    (tmp_path / "mails.csv").write_text("a,label\n1,x\n")
    with pytest.raises(ValueError, match=r"has no sub-folders; .*\. Was .*mails\.csv meant\?"):
        load(tmp_path)


def test_a_label_that_appears_once(pictures: Path) -> None:
    picture(pictures / "catt" / "0.png")
    with pytest.raises(ValueError, match="label 'catt' has fewer than the 2 rows a class needs"):
        load(pictures)
    assert load(pictures, min_per_class=1).num_classes == 3


def test_pictures_of_another_size(pictures: Path) -> None:
    picture(pictures / "cat" / "wide.png", size=(6, 9))
    said = r"differ in size \(cat/wide\.png is 6 x 9 pixels, others are 6 x 5\): all become 5 x 5.*\(--size\)"
    with pytest.warns(UserWarning, match=said):
        assert load(pictures).inputs.shape == (7, 5, 5, 3)
    assert load(pictures, size=8).inputs.shape == (7, 8, 8, 3)
    assert load(pictures, size=(4, 7)).inputs.shape == (7, 4, 7, 3)
    for size in (0, (0, 4), (4, 0)):
        with pytest.raises(ValueError, match="size must be a whole number of at least 1"):
            load(pictures, size=size)


def test_one_icon_does_not_decide_the_size_of_all(tmp_path: Path) -> None:
    for number, side in enumerate((4, 30, 40, 50, 200)):
        picture(tmp_path / "ab"[number % 2] / f"{number}.png", size=(side, side + number))
    with pytest.warns(UserWarning, match="all become 40 x 40"):
        assert load(tmp_path).inputs.shape == (5, 40, 40, 3)


def test_pictures_of_another_mode(pictures: Path) -> None:
    picture(pictures / "cat" / "grey.png", mode="L")
    picture(pictures / "cat" / "clear.png", mode="RGBA")
    picture(pictures / "cat" / "palette.gif", mode="P")
    data = load(pictures)
    assert data.inputs.shape == (9, 6, 5, 3)
    grey = data.inputs[data.ids.tolist().index("cat/grey.png")]
    assert (grey == grey[..., :1]).all()


def test_of_a_large_jpeg_a_part_of_the_detail_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ramp = np.add.outer(np.linspace(0, 120, 800), np.linspace(0, 120, 1000)).astype(np.uint8)
    sizes = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(np.stack([ramp] * 3, -1)).save(tmp_path / name / "0.jpg", quality=95)
    whole = Image.open(tmp_path / "a" / "0.jpg").resize((50, 40), Image.Resampling.BILINEAR)
    resize = Image.Image.resize

    def seen(image: Image.Image, *arguments: Any) -> Image.Image:
        sizes.append(image.size)
        return resize(image, *arguments)

    monkeypatch.setattr(Image.Image, "resize", seen)
    data = load(tmp_path, size=(40, 50), min_per_class=1)
    assert sizes == [(125, 100)] * 2
    assert np.abs(data.inputs[0].astype(int) - np.asarray(whole)).max() <= 1


def test_grey_pictures_have_one_channel(tmp_path: Path) -> None:
    for number in range(4):
        picture(tmp_path / "ab"[number % 2] / f"{number}.png", seed=number, mode="L")
    assert load(tmp_path).inputs.shape == (4, 6, 5, 1)


@pytest.mark.parametrize("name", ["0.png", "0.tif", "0.pgm"])
def test_of_16_bits_the_upper_eight_count(name: str, tmp_path: Path) -> None:
    ramp = np.linspace(0, 255, 30).astype(np.uint8).reshape(6, 5)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        Image.fromarray(ramp.astype(np.uint16) * 257).save(tmp_path / folder / name)
    data = load(tmp_path, min_per_class=1)
    assert data.inputs.shape == (2, 6, 5, 1)
    assert np.array_equal(data.inputs[0, ..., 0], ramp)


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_a_transparent_picture_lies_on_white(mode: str, tmp_path: Path) -> None:
    """A black drawing whose transparent ground is stored as black, as many icons are."""
    for folder in ("a", "b"):
        picture = Image.new("RGBA", (5, 6), (0, 0, 0, 0))
        picture.putpixel((1, 2), (0, 0, 0, 255))
        (tmp_path / folder).mkdir()
        picture.convert(mode).save(tmp_path / folder / "0.png")
    image = load(tmp_path, min_per_class=1).inputs[0]
    assert image[2, 1].tolist() == [0, 0, 0]
    assert (image.reshape(-1, 3).sum(axis=1) == 3 * 255).sum() == 29


def test_photographs_of_a_telephone_are_not_passed_over(pictures: Path) -> None:
    picture(pictures / "cat" / "saved by a browser.jfif.jpg")
    (pictures / "cat" / "saved by a browser.jfif.jpg").rename(pictures / "cat" / "3.JFIF")
    (pictures / "dog" / "IMG_1.HEIC").write_bytes(b"needs a plugin")
    with pytest.warns(UserWarning, match=r"1 of 8 pictures left out: dog/IMG_1\.HEIC: not a picture that P"):
        assert "cat/3.JFIF" in load(pictures).ids


def test_pictures_in_no_class_folder_are_counted(pictures: Path) -> None:
    picture(pictures / "loose.png")
    with pytest.warns(UserWarning, match=r"1 pictures that lie in no class folder \(first: loose\.png\)"):
        assert len(load(pictures)) == 6


def test_a_camera_held_upright(tmp_path: Path) -> None:
    for name in ("a", "b"):
        picture(tmp_path / name / "0.png", size=(6, 5))
    exif = Image.Exif()
    exif[0x0112] = 6
    sideways = Image.new("RGB", (6, 5), "white")
    sideways.save(tmp_path / "a" / "turned.jpg", exif=exif)
    data = load(tmp_path, min_per_class=1)
    assert data.inputs.shape == (3, 6, 5, 3)


def test_listed_pictures(pictures: Path) -> None:
    rows = [f"cat/{n}.png,c" for n in range(3)] + [f"dog/deep/{n}.png,d" for n in range(3)]
    (pictures / "list.csv").write_text("\n".join(["file,label", *rows, "gone.png,d"]))
    with pytest.warns(UserWarning, match=r"1 of 7 pictures left out: gone\.png: no such file"):
        data = load(pictures / "list.csv")
    assert data.class_names == ("c", "d")
    assert data.ids[0] == "cat/0.png"
    (pictures / "list.csv").write_text("\n".join(["where,what", *rows]))
    with pytest.raises(ValueError, match=r"has no column 'file'.*Say which with file="):
        load(pictures / "list.csv", file="file", label="what")
    assert len(load(pictures / "list.csv", file="where", label="what")) == 6


def test_more_pictures_than_memory_are_decoded_on_demand(
    pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = load(pictures)
    monkeypatch.setattr(pictures_module, "MEMORY_BYTES", 100)
    (pictures / "cat" / "cut.png").write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"cut\.png"):
        data = load(pictures)
    assert isinstance(data.inputs, ImageFiles)
    assert np.array_equal(data.inputs[np.array([5, 0])], whole.inputs[[5, 0]])
    assert np.array_equal(data.subset([4]).inputs[np.array([0])], whole.inputs[[4]])
    assert np.array_equal(data.inputs[2], whole.inputs[2])
    (pictures / "cat" / "1.png").unlink()
    with pytest.warns(UserWarning, match=r"1\.png: no such file; a black picture stands in"):
        assert not data.inputs[np.array([1, 0])][0].any()


def test_progress_is_shown_on_a_terminal(
    pictures: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load(pictures)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    load(pictures)
    assert "decode pictures" in capsys.readouterr().err


CSV = """age,town,id,label
20,Ulm,a1,yes
40,Bonn,a2,no
60,Ulm,a3,no
20,Ulm,a4,yes
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_table(tmp_path: Path) -> None:
    data = load(write(tmp_path / "x.csv", CSV), id="id")
    assert data.class_names == ("no", "yes")
    assert data.given_labels.tolist() == [1, 0, 0, 1]
    assert data.ids.tolist() == ["a1", "a2", "a3", "a4"]
    assert data.encoder is not None
    assert data.encoder.feature_names == ("age", "town = Ulm", "town = Bonn")
    age = np.array([20, 40, 60, 20])
    assert data.inputs[:, 0] == pytest.approx((age - age.mean()) / age.std())
    assert data.inputs[:, 1:].tolist() == [[1, 0], [0, 1], [1, 0], [1, 0]]
    assert load(tmp_path / "x.csv", ignore=["town", "id"]).inputs.shape == (4, 1)
    codes = load(tmp_path / "x.csv", ignore=["id", "town"], categorical=["age"])
    assert codes.encoder.feature_names == ("age = 20", "age = 40", "age = 60")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_other_separators_and_a_byte_order_mark(separator: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("\ufeff" + CSV.replace(",", separator), encoding="utf-8")
    assert load(tmp_path / "x.csv", id="id").inputs.shape == (4, 3)


def test_parquet_gives_what_csv_gives(tmp_path: Path) -> None:
    frame = pandas.DataFrame(
        {
            "age": [20.0, None, 60.0, 20.0],
            "town": ["Ulm", "Bonn", None, "Ulm"],
            "sure": [True, False, True, True],
            "label": [1.0, 2.0, 2.0, 1.0],
        }
    )
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False)
    parquet = load(tmp_path / "x.parquet")
    assert parquet.class_names == ("1", "2")
    assert parquet.encoder.feature_names == (
        *("age", "age is missing", "town = Ulm", "town = Bonn", "town is missing"),
        *("sure = True", "sure = False"),
    )
    assert parquet.inputs[1, :2].tolist() == [0, 1]
    assert parquet.inputs[2, 2:5].tolist() == [0, 0, 1]
    text = load(tmp_path / "x.csv", label="label")
    assert text.class_names == ("1.0", "2.0"), "cells of text files keep their words"
    assert np.array_equal(text.inputs, parquet.inputs)


@pytest.mark.parametrize(
    "form",
    [
        *(None, "%Y-%m-%d", "%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%d %H:%M"),
        *("%d.%m.%Y", "%d.%m.%Y %H:%M", "%Y/%m/%d", "%Y/%m/%d %H:%M:%S"),
    ],
)
def test_dates_are_numbers(form: str | None, tmp_path: Path) -> None:
    when = pandas.to_datetime(["2020-01-01", "2020-01-03", "2020-01-01", "2020-01-03"])
    frame = pandas.DataFrame({"when": when, "label": list("abab")})
    path = tmp_path / "x.parquet"
    if form is None:
        frame.to_parquet(path)
    else:
        path = path.with_suffix(".csv")
        frame.assign(when=when.strftime(form)).to_csv(path, index=False)
    data = load(path)
    assert data.inputs.tolist() == [[-1], [1], [-1], [1]]
    assert columns_and_values(data, np.arange(2))[1] == [
        [word] for word in when.strftime(form or "%Y-%m-%d")[:2]
    ]
    assert data.encoder.transform(pandas.DataFrame({"when": ["2020-01-02"]})).tolist() == [[0]]
    assert data.encoder.transform(pandas.DataFrame({"when": ["", "?"]})).tolist() == [[0], [0]]
    with pytest.raises(ValueError, match=r"held dates in training; now it holds words\. Write dates or"):
        data.encoder.transform(pandas.DataFrame({"when": ["soon", "later"]}))


@pytest.mark.parametrize(
    ("cell", "message"),
    [("12O", "'12O' in row 21"), ("inf", "infinite value in row 21"), ("20", "no 'true' .first: row 21,")],
)
def test_a_row_keeps_its_number_where_others_are_left_out(cell: str, message: str, tmp_path: Path) -> None:
    rows = [f"{n},{'xy'[n % 2]},x" for n in range(20)]
    path = write(tmp_path / "x.csv", "\n".join(["a,label,true", "0,,x", *rows, f"{cell},x,"]))
    with pytest.raises(ValueError, match=message), pytest.warns(UserWarning, match="are left out"):
        load(path, skip_unlabelled=True, true_label="true" if cell == "20" else None)


@pytest.mark.parametrize("cell", ["2020/1/2 6:00", "2.1.2020 6:00:00", "2020-01-02 06:00"])
def test_the_time_of_a_date(cell: str) -> None:
    days, _ = as_dates(pandas.Series([cell, ""]), "when")
    assert days is not None
    assert np.array_equal(days, [18263.25, np.nan], equal_nan=True)


@pytest.mark.parametrize("cell", ["2020/13/01", "30.2.2020", "1.2.2020 25:00"])
def test_a_date_on_no_calendar(cell: str) -> None:
    with pytest.raises(ValueError, match=f"dates except for 1 cells .first: '{cell}' in row 0"):
        as_dates(pandas.Series([cell, *[("1.1.2020" if "." in cell else "2020/1/1")] * 20]), "when")


@pytest.mark.parametrize(("form", "day_first"), [("%m/%d/%Y %H:%M", False), ("%d/%m/%Y", True)])
def test_which_number_is_the_day_is_told_by_the_column(form: str, day_first: bool, tmp_path: Path) -> None:
    when = pandas.date_range("2020-01-01", periods=40, freq="D")
    frame = pandas.DataFrame({"when": when.strftime(form), "label": list("ab") * 20})
    frame.to_csv(tmp_path / "x.csv", index=False)
    encoder = load(tmp_path / "x.csv").encoder
    assert encoder.columns[0].day_first is day_first
    # Rows that do not tell are read as those of the training; so are they by the stored encoder.
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    for each in (encoder, again):
        found = each.transform(frame[8:9])
        assert np.allclose(found, (8 - 19.5) / np.std(np.arange(40)))


def test_times_of_day_are_numbers(tmp_path: Path) -> None:
    at = [datetime.time(8, 30), datetime.time(20, 30)] * 2
    frame = pandas.DataFrame({"at": at, "label": list("abab")})
    frame.to_parquet(tmp_path / "x.parquet")
    frame.to_csv(tmp_path / "x.csv", index=False)
    frame.assign(at=["8:30 AM", "8:30 PM"] * 2).to_csv(tmp_path / "y.csv", index=False)
    for path in ("x.parquet", "x.csv", "y.csv"):
        encoder = load(tmp_path / path).encoder
        assert encoder.columns[0].kind == "time"
        assert encoder.columns[0].mean == 14.5
        # New rows are read as they are written; so they are by the stored encoder.
        again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
        for each, cells in product((encoder, again), (["20:30", "", "?"], ["8:30 PM", "NA", "2:30 p.m."])):
            assert each.transform(pandas.DataFrame({"at": cells})).tolist() == [[1], [0], [0]]
        assert again.transform(pandas.DataFrame({"at": [None, ""]})).tolist() == [[0], [0]]
        with pytest.raises(ValueError, match=r"held times in training; now it holds words\. Write times or"):
            again.transform(pandas.DataFrame({"at": ["soon", "later"]}))
        with pytest.raises(ValueError, match=r"times of day except for 1 cells \(first: '25:00' in row 0\)"):
            again.transform(pandas.DataFrame({"at": ["25:00", *["8:30"] * 20]}))
    assert load(tmp_path / "y.csv", categorical=["at"]).encoder.columns[0].kind == "category"


def test_times_of_day_are_the_words_of_an_older_encoder_that_had_them_as_such() -> None:
    column = {"name": "at", "kind": "category", "missing": False, "mean": 0.5, "std": 0.5}
    older = TableEncoder.from_dict({"columns": [column | {"categories": ["8:30", "20:30"]}]})
    rows = pandas.DataFrame({"at": ["20:30", "8:30", "9:00"]})
    assert older.transform(rows).tolist() == [[0, 1], [1, 0], [0, 0]]


def test_both_numbers_cannot_be_the_day() -> None:
    cells = ["13/1/2020", "1/13/2020"] * 10
    assert as_dates(pandas.Series(cells), "when")[0] is None


def test_a_date_that_is_none(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "d,label\n" + "2020-02-28,x\n2020-02-29,y\n" * 9 + "2021-02-29,x\n")
    with pytest.raises(
        ValueError, match=r"dates except for 1 cells \(first: '2021-02-29' in row 18\).*--cate"
    ):
        load(path)
    slashes = write(tmp_path / "y.csv", "d,label\n" + "2/1/2020,x\n1/2/2020,y\n" * 9)
    assert load(slashes).encoder.feature_names == ("d = 1/2/2020", "d = 2/1/2020")


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("a;label\n1,5;x\n-0,25;y\n2;x\n;y\n1.234,5;x\n", [1.5, -0.25, 2, None, 1234.5]),
        ("a\tlabel\n1,5\tx\n1,5e3\ty\n2\tx\n3\ty\n", [1.5, 1500, 2, 3]),
        ("a;label\n1,234;x\n2,500;y\n3;x\n4;y\n", [1.234, 2.5, 3, 4]),
        ("a\tlabel\n1,234\tx\n12,345.5\ty\n2\tx\n3\ty\n", [1234, 12345.5, 2, 3]),
        ("a|label\n1,234|x\n0,345|y\n2|x\n3|y\n", [1.234, 0.345, 2, 3]),
        ("a;label\n1 234,5;x\n-12\u202f345;y\n1\u00a0000;x\n8;y\n", [1234.5, -12345, 1000, 8]),
        ("a,label\n12%,x\n1.5 %,y\n,x\n100%,y\n", [12, 1.5, None, 100]),
        ('a,label\n"1,234.5",x\n"12,345,678",y\n7,x\n8,y\n', [1234.5, 12345678, 7, 8]),
    ],
)
def test_numbers_as_a_spreadsheet_writes_them(text: str, numbers: list[Any], tmp_path: Path) -> None:
    data = load(write(tmp_path / "x.csv", text))
    plain = pandas.Series(numbers, dtype=float)
    assert data.encoder.columns[0].kind == "number"
    assert data.encoder.columns[0].mean == pytest.approx(plain.mean())
    assert data.encoder.columns[0].std == pytest.approx(plain.std(ddof=0))


def test_labels_and_ids_stay_as_they_are_written(tmp_path: Path) -> None:
    rows = "a;id;label\n1,5;1,001;1,5\n2,5;1,002;2,5\n3,5;1,003;1,5\n4;1,004;2,5\n"
    data = load(write(tmp_path / "x.csv", rows), id="id")
    assert data.class_names == ("1,5", "2,5")
    assert data.ids.tolist() == ["1,001", "1,002", "1,003", "1,004"]


def test_answers_with_several_choices_are_words(tmp_path: Path) -> None:
    data = load(write(tmp_path / "x.csv", "a,label\n" + '1,x\n"1,3",y\n"2,3",y\n2,x\n' * 3))
    assert data.encoder.columns[0].categories == ("1", "1,3", "2", "2,3")


@pytest.mark.parametrize(
    ("ending", "pack"), [(".csv.gz", gzip), (".TSV.GZ", gzip), (".csv.bz2", bz2), (".tsv.xz", lzma)]
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_packed_tables(ending: str, pack: Any, encoding: str, tmp_path: Path) -> None:
    (tmp_path / f"x{ending}").write_bytes(pack.compress(CSV.encode(encoding)))
    data = load(tmp_path / f"x{ending}", id="id")
    assert data.ids.tolist() == ["a1", "a2", "a3", "a4"]
    features = InputEncoder.fit(data)
    assert np.array_equal(Source(str(tmp_path / f"x{ending}")).read(features).inputs, data.inputs)
    (tmp_path / f"x{ending}").write_bytes(pack.compress(CSV.encode(encoding))[:40])
    with pytest.raises(ValueError, match=r"is not a readable table"):
        load(tmp_path / f"x{ending}")


@pytest.mark.parametrize("ending", [".jsonl", ".JSONL.gz"])
def test_json_lines(ending: str, tmp_path: Path) -> None:
    rows = [
        {"text": "a, b", "label": "007", "n": 1},
        {"text": "c\nd", "label": "NA", "n": None},
        {"text": None, "label": "007"},
        {"text": "ü", "label": "NA", "n": 2.5, "more": "x"},
    ]
    words = "\n\n".join(json.dumps(row) for row in rows).encode()
    path = tmp_path / f"x{ending}"
    path.write_bytes(gzip.compress(words) if ending.endswith("gz") else words)
    texts = load(path, text="text", ignore=["n", "more"])
    assert texts.inputs.tolist() == ["a, b", "c\nd", "", "ü"]
    assert texts.class_names == ("007", "NA")
    table = load(path, ignore=["text"])
    assert table.encoder.feature_names == ("n", "n is missing", "more = x", "more is missing")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1}\n{"a"', "x.jsonl is not a readable table: line 2 is not JSON: Expecting"),
        ('{"a": 1}\n\n[1]\n', "line 3 is not a JSON object"),
        ("\n", "has no rows"),
        (
            '{"a": {"b": 1}, "label": "x"}\n{"a": {}, "label": "y"}\n',
            r"column 'a' holds lists.*\(--ignore 'a'\)",
        ),
    ],
)
def test_bad_json_lines(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(write(tmp_path / "x.jsonl", text), min_per_class=1)


def test_half_a_character_in_json_lines(tmp_path: Path) -> None:
    """Text that was cut at a length ends in the middle of an emoji; pandas refused the whole file."""
    texts = ["cut \ud83d", "whole \U0001f600", "plain", "plain"]
    lines = [json.dumps({"text": text, "label": "ab"[row % 2]}) for row, text in enumerate(texts)]
    data = load(write(tmp_path / "x.jsonl", "\n".join(lines)))
    assert data.inputs.tolist() == ["cut \ufffd", "whole \U0001f600", "plain", "plain"]


def test_a_spreadsheet_is_to_be_saved_as_csv(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"\.csv\.gz and the like are read\. Save the sheet as CSV"):
        load(write(tmp_path / "x.xlsx", "PK"))
    with pytest.raises(ValueError, match=r"\.csv\.gz and the like are read\. Write an object on each line"):
        Source(str(write(tmp_path / "x.json", "{}"))).read(InputEncoder("table", (1,), ("x", "y")))


def test_new_rows_are_read_as_the_run_remembers(tmp_path: Path) -> None:
    """Blanks around a name are not part of it, and a named data set has no such columns."""
    texts = TextEncoder(("sun", "rain"), (1.0, 1.0), 1.0)
    text_run = InputEncoder("text", (2,), ("x", "y"), text=texts)
    path = write(tmp_path / "x.csv", "id, words ,note\n7,sun,a\n8,rain,b\n")
    rows = Source(str(path), {"text": " words ", "id": "id "}).read(text_run)
    assert rows.ids.tolist() == ["7", "8"]
    like = Source("y.csv", {"text": " words", "label": "topic", "file": "photo"})
    assert Source(str(path)).read(text_run, like).ids.tolist() == [0, 1]
    with pytest.raises(ValueError, match="has no column 'mail'"):
        Source(str(path), {"text": "mail"}).read(text_run, like)
    with pytest.raises(ValueError, match=r"digits does not hold rows of the kind .* \(text\)"):
        Source("digits").read(text_run, like)
    with pytest.raises(ValueError, match=r"does not hold rows of the kind .* \(text\)"):
        Source(str(tmp_path)).read(text_run, like)
    picture_run = InputEncoder("image", (8, 8, 1), tuple("0123456789"))
    assert len(Source("digits", {"split": "test"}).read(picture_run, like)) == 359


@pytest.mark.parametrize("header", ["a,a,label", "a, a,label", "a ,a,label"])
def test_two_columns_of_one_name(header: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", f"{header}\n1,9,x\n2,8,y\n3,7,x\n4,6,y\n")
    with pytest.warns(UserWarning, match=r"more than one column 'a'; the first of them is meant"):
        data = load(path)
    assert [column.mean for column in data.encoder.columns] == [2.5, 7.5]


def test_texts_of_a_categorical_column(tmp_path: Path) -> None:
    words = pandas.Categorical(["sun", None, "sun", "rain"])
    pandas.DataFrame({"words": words, "label": list("xyxy")}).to_parquet(tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet", text="words").inputs.tolist() == ["sun", "", "sun", "rain"]


def test_the_last_ending_says_what_a_file_is(tmp_path: Path) -> None:
    assert len(load(write(tmp_path / "rows.jsonl.csv", "a,label\n1,x\n2,y\n3,x\n4,y\n"))) == 4


@pytest.mark.parametrize(("dtype", "labels"), [("Int64", [3, 5]), ("string", ["x", "y"])])
def test_a_missing_label_of_a_nullable_column(dtype: str, labels: list[Any], tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": range(5), "label": pandas.array([*labels, None, *labels], dtype=dtype)})
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"1 rows have no 'label' \(first: row 2"):
        load(tmp_path / "x.parquet")
    with pytest.warns(UserWarning, match="1 of 5 rows have no 'label'"):
        data = load(tmp_path / "x.parquet", skip_unlabelled=True)
    assert data.class_names == tuple(map(str, labels))


def test_labels_that_differ_in_capitals_only(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,label\n" + "1,Yes\n2,yes\n3,no\n4,a\n5,A\n" * 2)
    with pytest.warns(
        UserWarning, match="'Yes' and 'yes' count as different labels; .*write them alike"
    ) as caught:
        assert load(path).num_classes == 5
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        ("caf\u00e9", "cafe\u0301", r"'cafe\\u0301' and 'caf\\xe9'"),
        ("New York", "New  York", "'New  York' and 'New York'"),
        ("1", "1.0", r"'1' and '1\.0'"),
    ],
)
def test_labels_that_a_person_hardly_tells_apart(one: str, other: str, named: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", f"a,label\n1,{one}\n2,{other}\n3,{one}\n4,{other}\n")
    with pytest.warns(UserWarning, match=f"{named} count as different labels"):
        load(path)


def test_names_of_rows_are_no_labels(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,label\n" + "".join(f"{n},name {n}\n" for n in range(30)))
    with pytest.raises(ValueError, match=r"30 different labels in 30 rows.*names of rows.*--label\)"):
        load(path)


def test_of_a_wide_table_some_columns_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", ",".join(f"c{n}" for n in range(500)) + "\n" + "1," * 499 + "1\n")
    with pytest.raises(ValueError, match=r"'c19'\] and 480 more\. Say which") as caught:
        load(path)
    assert "c20" not in str(caught.value)


def test_a_name_cut_off_is_not_taken_for_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tolerant.data.readers.row_files._MOST_OF_HEADER", 49)
    names = [f"c{n}" for n in range(1, 31)]
    assert ",".join(names)[:49].endswith(",c1")  # of c15; warnings are errors
    path = write(tmp_path / "x.csv", ",".join(names) + "\n" + "1," * 29 + "1\n")
    assert list(read_frame(path).columns) == names


def test_encoder_saved_and_applied_to_new_rows(tmp_path: Path) -> None:
    text = "age,town,label\n20,Ulm,a\n40,,b\n,Bonn,b\n30.1,Ulm,a\n"
    data = load(write(tmp_path / "x.csv", text))
    write_json(tmp_path / "encoder.json", data.encoder.to_dict())
    encoder = TableEncoder.from_dict(read_json(tmp_path / "encoder.json"))
    assert encoder == data.encoder
    assert np.array_equal(encoder.transform(read_frame(tmp_path / "x.csv")), data.inputs)
    new = pandas.DataFrame({"extra": [1, 2], "town": ["Jena", "NA"], "age": ["1e30", "?"]})
    assert encoder.transform(new).tolist() == [[1e6, 0, 0, 0, 0], [0, 1, 0, 0, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # new rows bring no warnings of their own
        later = load(tmp_path / "x.csv", encoder=encoder, class_names=data.class_names)
    assert np.array_equal(later.inputs, data.inputs)


@pytest.mark.parametrize("value", [{}, [], {"columns": [{"name": "x"}]}, {"columns": [1]}, None])
def test_not_a_saved_encoder(value: Any) -> None:
    with pytest.raises(ValueError, match="not a saved table encoder"):
        TableEncoder.from_dict(json.loads(json.dumps(value)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n1,2\n", r"has no column 'label'; it has \['a', 'b'\]. Say which with label="),
        ("a,label\n1,x\n2,x\n3,y\n", "label 'y' has fewer than the 2 rows"),
        ("a,label\n1,x\n2,x\n", "every row is labelled 'x'; at least two classes are needed"),
        ("a,label\n1,x\n2,\n3,\n", r"2 rows have no 'label' \(first: row 1.*\(--skip-unlabelled\)"),
        ("a,label\n", "has no rows"),
        ("", "is not a readable table: No columns"),
        ("a,label\n1,x,9\n2,y\n", "its rows have more cells than its first line, which must name every"),
        ("a,label\n1,x\n2,y,9\n", "is not a readable table: Error tokenizing data.*line 3"),
        ("a,label\n1,x\n2,y\ninf,x\n3,y\n", r"column 'a' has an infinite value in row 2; .*\(--ignore 'a'\)"),
        ("a,label\n1e308,x\n-1e308,y\n1,x\n3,y\n", "column 'a' has values too large"),
        ("label\nx\ny\nx\ny\n", "no column with values beside the label"),
        ('a,label\n1,"x\n2,y\n', "is not a readable table"),
    ],
)
def test_bad_tables(text: str, message: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", text)
    with pytest.raises(ValueError, match=message):
        load(path)
    assert path.read_text() == text


@pytest.mark.parametrize("option", ["label", "true_label", "text", "id"])
def test_a_column_that_is_not_there_is_named_with_its_option(option: str, tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,label\n1,x\n2,y\n")
    with pytest.raises(ValueError, match=rf"has no column 'none'; .* Say which with {option}="):
        load(path, **{option: "none"})


def test_a_typing_error_in_a_column_of_numbers(tmp_path: Path) -> None:
    rows = [f"{n},{'xy'[n % 2]}" for n in range(20)]
    path = write(tmp_path / "x.csv", "\n".join(["a,label", *rows, "12O,x"]))
    with pytest.raises(ValueError, match=r"for 1 cells \(first: '12O' in row 20\).*empty means missing"):
        load(path)
    assert load(path, categorical=["a"]).inputs.shape == (21, 21)
    with pytest.raises(ValueError, match=r"categorical names 'b', which is not among the columns \['a'\]"):
        load(path, categorical=["b"])


@pytest.mark.parametrize("value", [0.1, 123.456, 1e9 + 0.1, 0.0])
def test_a_constant_column_is_not_divided_by_the_rounding_of_its_mean(value: float) -> None:
    encoder = TableEncoder.fit(pandas.DataFrame({"a": np.full(1000, value), "b": np.arange(1000.0) % 7}))
    new = encoder.transform(pandas.DataFrame({"a": [value, value + 2.0], "b": [0.0, 1.0]}))
    assert new[:, 0].tolist() == pytest.approx([0.0, 2.0], abs=1e-6)


def test_new_rows_that_do_not_fit(tmp_path: Path) -> None:
    encoder = TableEncoder.fit(pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]}))
    with pytest.raises(ValueError, match="no column 'b', with which the encoder was fitted"):
        encoder.transform(pandas.DataFrame({"a": [1]}))
    with pytest.raises(ValueError, match="column 'a' held numbers in training; now it holds words"):
        encoder.transform(pandas.DataFrame({"a": ["p", "q"], "b": ["x", "y"]}))
    frame = pandas.DataFrame({"a": [[1], [2]], "label": ["x", "y"]})
    frame.to_parquet(tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="column 'a' holds lists"):
        load(tmp_path / "x.parquet", min_per_class=1)


def test_an_empty_column_is_left_out(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,b,label\n1,,x\n2,,y\n3,,x\n4,,y\n")
    with pytest.warns(UserWarning, match="column 'b' is empty and is left out"):
        assert load(path).inputs.shape == (4, 1)


def test_endings_may_be_capitals(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": range(4), "label": ["x", "y"] * 2})
    frame.to_parquet(tmp_path / "x.PARQUET")
    frame.to_csv(tmp_path / "x.CSV", index=False)
    frame.to_csv(tmp_path / "x.Tsv", index=False, sep="\t")
    with (tmp_path / "x.NPZ").open("wb") as file:
        np.savez(file, inputs=np.zeros((4, 1)), labels=frame["label"].to_numpy(str))
    features = InputEncoder("table", (1,), ("x", "y"), load(tmp_path / "x.CSV").encoder)
    for name in ("x.PARQUET", "x.CSV", "x.Tsv", "x.NPZ"):
        assert load(tmp_path / name).given_labels.tolist() == [0, 1, 0, 1]
        assert len(Source(str(tmp_path / name)).read(features)) == 4


@pytest.mark.parametrize(("unit", "seconds"), [("s", 2**50), ("ms", 2**50), ("us", 2**42), ("ns", 2**33)])
def test_dates_are_numbers_however_far_away(unit: str, seconds: int) -> None:
    ticks = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    when = np.array([seconds * ticks, 0], f"datetime64[{unit}]")
    numbers, _ = as_dates(pandas.Series(when), "when")
    assert numbers == pytest.approx([seconds / 86_400, 0.0])


def test_a_parquet_column_beyond_range_is_named(tmp_path: Path) -> None:
    days = pa.array([2**31 - 1] * 4, pa.date32())  # the year 5,881,580
    pq.write_table(pa.table({"x": [1.0] * 4, "when": days, "label": list("abab")}), tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet is not a readable table: column 'when': "):
        load(tmp_path / "x.parquet")


def test_damaged_parquet(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"a": range(100), "label": ["x", "y"] * 50})
    frame.to_parquet(tmp_path / "x.parquet")
    whole = (tmp_path / "x.parquet").read_bytes()
    for cut in (0, 3, len(whole) // 2, len(whole) - 1):
        (tmp_path / "x.parquet").write_bytes(whole[:cut])
        with pytest.raises(ValueError, match=r"x\.parquet is not a readable table"):
            load(tmp_path / "x.parquet")


def test_text(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'text,label\n"a, b",x\nNA,y\n,x\nd,y\n')
    data = load(path)
    assert data.kind == "text"
    assert data.inputs.tolist() == ["a, b", "NA", "", "d"]
    write(path, "n,what,true,label\n1,a,x,x\n2,b,x,y\n3,c,y,y\n4,d,y,x\n")
    data = load(path, text="what", true_label="true", ignore=["n"])
    assert data.kind == "text"
    assert data.inputs.tolist() == ["a", "b", "c", "d"]
    assert data.flipped.tolist() == [False, True, False, True]
    with pytest.raises(ValueError, match=r"no column 'words'.*text="):
        load(path, text="words")


def npz(tmp_path: Path, **stored: Any) -> Path:
    np.savez(tmp_path / "x.npz", **stored)
    return tmp_path / "x.npz"


def test_npz(tmp_path: Path) -> None:
    images = np.arange(48, dtype=np.uint8).reshape(4, 2, 2, 3)
    data = load(npz(tmp_path, x=images, y=[5, 7, 5, 7], true_labels=[5, 5, 5, 7], ids=list("abcd")))
    assert data.kind == "image"
    assert data.class_names == ("5", "7")
    assert data.flipped.tolist() == [False, True, False, False]
    assert data.ids.tolist() == list("abcd")
    assert np.array_equal(data.inputs, images)
    assert load(npz(tmp_path, x=images[..., 0], y=[0, 0, 1, 1])).inputs.shape == (4, 2, 2, 1)
    named = load(npz(tmp_path, x=images, y=[0, 2, 0, 0], class_names=list("abc")))
    assert named.class_names == ("a", "b", "c")
    rows = load(npz(tmp_path, a=np.eye(4), b=list("xyxy")), inputs="a", label="b")
    assert (rows.kind, rows.inputs.dtype) == ("table", np.float32)
    texts = load(npz(tmp_path, texts=["p", "q"], y=[0, 1]), min_per_class=1)
    assert (texts.kind, texts.inputs.tolist()) == ("text", ["p", "q"])
    floats = [0.0, 1.0, 0.0, 1.0]  # as numpy.loadtxt has them
    loaded = load(npz(tmp_path, embeddings=np.eye(4), y=floats, true_labels=floats))
    assert (loaded.given_labels.tolist(), loaded.class_names) == ([0, 1, 0, 1], ("0", "1"))
    compared = load(npz(tmp_path, embeddings=np.eye(4), y=[False, True, False, True]))
    assert (compared.given_labels.tolist(), compared.class_names) == ([0, 1, 0, 1], ("False", "True"))
    fortran = np.asfortranarray(np.arange(8.0).reshape(4, 2))
    assert np.array_equal(load(npz(tmp_path, x=fortran, y=[0, 0, 1, 1])).inputs, fortran)


def test_a_large_array_is_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 5, 4, 3), np.uint8)
    path = npz(tmp_path, y=np.arange(40) % 2, x=images)
    monkeypatch.setattr(npz_module, "MEMORY_MAP_BYTES", 1000)
    data = load(path)
    assert isinstance(data.inputs, np.memmap)
    assert np.array_equal(data.inputs, images)
    np.savez_compressed(tmp_path / "packed.npz", y=np.arange(40) % 2, x=images)
    assert np.array_equal(load(tmp_path / "packed.npz").inputs, images)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        ({"x": np.eye(4)}, "has no array 'given_labels' or 'labels' or 'y'"),
        ({"y": [0, 1]}, "has no array 'inputs'.*Say which with inputs="),
        ({"x": np.eye(4), "y": [0, 1]}, "4 inputs need as many labels"),
        ({"x": np.eye(4), "y": 3}, "'y' is a single value"),
        ({"x": np.eye(4), "y": [0.5] * 4}, "labels must be whole numbers or words"),
        ({"x": np.full((4, 2), np.nan), "y": [0, 0, 1, 1]}, "row 0 has a NaN or infinite feature"),
        ({"x": np.zeros((4, 3, 8, 8), np.uint8), "y": [0, 0, 1, 1]}, "Move the channels last"),
        ({"x": np.zeros((4, 8, 8, 3)), "y": [0, 0, 1, 1]}, "inputs must be uint8 images"),
        ({"x": np.eye(4), "y": [0, 1, 1, 1]}, "label '0' has fewer than the 2 rows"),
        ({"x": np.array([{}] * 4), "y": [0, 0, 1, 1]}, r"Python objects, which .*array\.astype\(str\)"),
    ],
)
def test_bad_npz(stored: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        load(npz(tmp_path, **stored))


@pytest.mark.parametrize(
    ("version", "names", "message"),
    [
        ((2, 0), "xy", ""),
        ((3, 0), "xy", r"array format \(3, 0\) is not known"),
        ((1, 0), "xyx", "two arrays"),
    ],
)
@pytest.mark.filterwarnings("ignore:Stored array in format", "ignore:Duplicate name")
def test_npz_of_other_writers(version: tuple[int, int], names: str, message: str, tmp_path: Path) -> None:
    stored = {"x": np.eye(4), "y": np.array([0, 0, 1, 1])}
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in names:
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, stored[name], version)
            archive.writestr(f"{name}.npy", buffer.getvalue())
    if message:
        with pytest.raises(ValueError, match=f"not a readable NPZ file: {message}"):
            load(tmp_path / "x.npz")
    else:
        assert np.array_equal(load(tmp_path / "x.npz").inputs, stored["x"])


def people(tmp_path: Path, **columns: Any) -> Path:
    """80 rows: a measurement, a label, and what a test adds."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"size": rng.normal(size=80), "label": ["small", "large"] * 40})
    frame.assign(**columns).to_csv(tmp_path / "people.csv", index=False)
    return tmp_path / "people.csv"


@pytest.mark.parametrize("copy", [["small", "large"] * 40, [0, 1] * 40, ["b", "a"] * 40])
def test_a_column_that_is_the_label_again_is_named(copy: list[Any], tmp_path: Path) -> None:
    path = people(tmp_path, again=copy)
    with pytest.warns(UserWarning, match=r"column 'again' is 'label' in other words.*--ignore 'again'"):
        load(path)
    load(path, ignore=["again"])  # warnings are errors


def test_a_column_that_is_coarser_than_the_label_is_no_copy(tmp_path: Path) -> None:
    """Though it is one in the first rows: what follows from the label may still be a good feature."""
    labels = ["oak", "cat"] * 30 + ["pine", "dog"] * 10
    load(people(tmp_path, label=labels, again=["plant", "animal"] * 40))


def test_a_column_that_tells_most_labels_is_not_the_label_again(tmp_path: Path) -> None:
    load(people(tmp_path, near=[0, 1] * 39 + [1, 1]))


def test_a_column_that_counts_the_rows_is_named(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"'nr' counts the rows.*--ignore 'nr'"):
        load(people(tmp_path, nr=range(7, 87)))


def test_numbers_with_many_other_words_are_named_as_words(tmp_path: Path) -> None:
    """Up to a tenth of other words is an error, above it the column becomes words: never without a word."""
    path = people(tmp_path, count=[str(row % 30) if row % 5 else "-" for row in range(80)])
    with pytest.warns(
        UserWarning,
        match=r"'count'.* it holds numbers in 64 of 80 rows \(others hold '-' \.{3}\)\. "
        r"Leave a cell empty where the number is missing.*--categorical 'count'",
    ):
        assert load(path).encoder.columns[1].kind == "category"
    load(path, categorical=["count"])  # warnings are errors


def test_zip_codes_of_which_some_are_longer_are_words(tmp_path: Path) -> None:
    codes = [*["94110", "2139", "10001", "94110"] * 19, "94110-1234", "10001-0001", "94110", "501"]
    path = people(tmp_path, code=codes)
    with pytest.warns(
        UserWarning,
        match=r"'code' is read as words, though it holds numbers in 78 of 80 rows .*'10001-0001'.*"
        "for codes pass categorical=",
    ):
        column = load(path).encoder.columns[1]
    assert column.categories[:3] == ("94110", "10001", "2139")
    load(path, categorical=["code"])  # warnings are errors


@pytest.mark.parametrize(
    ("cell", "slip"),
    [
        *(("94110", "9411O"), ("94110", "94110-123"), ("94110", "94110-12345"), ("15", "10-20")),
        *(("94110.5", "94110-1234"), ("-94110", "94110-1234"), ("1094110", "94110-1234")),
    ],
)
def test_a_slip_among_numbers_is_no_zip_code(cell: str, slip: str) -> None:
    with pytest.raises(ValueError, match=f"holds numbers except for 1 cells .first: '{slip}' in row 40"):
        TableEncoder.fit(pandas.DataFrame({"code": [cell, "94111"] * 20 + [slip]}))


def test_a_longer_zip_code_where_training_had_numbers_is_named() -> None:
    encoder = TableEncoder.fit(pandas.DataFrame({"code": ["94110", "94111"] * 20}))
    with pytest.raises(ValueError, match=r"holds numbers except for 1 cells .first: '94110-1234' in row 20"):
        encoder.transform(pandas.DataFrame({"code": [*["94110"] * 20, "94110-1234"]}))


@pytest.mark.parametrize("word", ["EUR {}.50", "{:02}/12/2024"])
def test_amounts_and_dates_that_are_words_say_how_to_write_them(word: str, tmp_path: Path) -> None:
    path = people(tmp_path, paid=[word.format(row) for row in range(80)])
    with pytest.warns(
        UserWarning, match="write amounts as plain numbers, dates as 2024-12-31 and times as 13:30"
    ):
        load(path)


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
def test_true_and_false_are_the_same_in_every_kind_of_file(ending: str, tmp_path: Path) -> None:
    """A column of booleans with one missing holds objects, and is text in CSV."""
    whole = pandas.DataFrame({"ok": [True, False, True, True], "label": ["x", "y", "x", "y"]})
    whole.to_parquet(tmp_path / "whole.parquet")
    encoder = load(tmp_path / "whole.parquet").encoder
    some = whole.astype({"ok": object})
    some.loc[1, "ok"] = None
    path = tmp_path / f"some.{ending}"
    if ending == "csv":
        some.to_csv(path, index=False)
    elif ending == "jsonl":
        some.to_json(path, orient="records", lines=True)
    else:
        some.to_parquet(path)
    assert encoder.feature_names == ("ok = True", "ok = False")
    assert encoder.transform(read_frame(path)).tolist() == [[1, 0], [0, 0], [1, 0], [1, 0]]


def test_the_named_index_of_a_parquet_file_is_a_column_but_no_feature(tmp_path: Path) -> None:
    frame = pandas.DataFrame({"who": ["p", "q", "r", "s"], "a": [1, 2, 3, 4], "label": ["x", "y"] * 2})
    frame.set_index("who").to_parquet(tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet", id="who").ids.tolist() == ["p", "q", "r", "s"]
    assert load(tmp_path / "x.parquet").encoder.feature_names == ("a",)
    frame.set_index("who", drop=False).to_parquet(tmp_path / "x.parquet")  # a column of that name, too
    assert load(tmp_path / "x.parquet", id="who").ids.tolist() == ["p", "q", "r", "s"]


def test_new_rows_with_gaps_where_training_had_none(tmp_path: Path) -> None:
    text = "age,town,label\n20,Ulm,a\n40,Bonn,b\n30,Bonn,b\n35,Ulm,a\n"
    features = InputEncoder.fit(load(write(tmp_path / "x.csv", text)))
    new = Source(str(write(tmp_path / "new.csv", "age,town\n,Ulm\n?,Ulm\n30,Bonn\n")))
    with pytest.warns(UserWarning, match=r"2 of 3 rows have no value in the column 'age'") as caught:
        new.read(features)
    assert len(caught) == 1


def test_gaps_in_many_columns_are_one_sentence(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(7)]
    rows = [",".join([*(str(row + place) for place in range(7)), "ab"[row % 2]]) for row in range(4)]
    features = InputEncoder.fit(
        load(write(tmp_path / "x.csv", "\n".join([",".join([*names, "label"]), *rows])))
    )
    new = "\n".join([",".join(names), ",,,,,,7", "1,,,,,,"])
    with pytest.warns(
        UserWarning, match=r"some of 2 rows .* one of 7 columns .*: 'c0' \(1\), .*, \.\.\."
    ) as caught:
        Source(str(write(tmp_path / "new.csv", new))).read(features)
    assert len(caught) == 1


def test_a_column_of_names_is_named(tmp_path: Path) -> None:
    path = people(tmp_path, who=[f"person {row}" for row in range(80)])
    with pytest.warns(
        UserWarning, match=r"a different word in 'who' \(80 words: 'person 0' \.\.\.\); 64 of them.*--id"
    ):
        load(path)
    load(path, id="who")


def test_more_words_than_have_a_feature_each_have_a_place() -> None:
    """Of 100 towns the 61 most frequent ones have a feature, and the first three others by the alphabet."""
    towns = [f"t{row:03}" for row in range(99) for _ in range(3 if row < 60 else 2)] + ["zz"] * 4 + [""]
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"town": rng.permutation(towns), "street": rng.permutation(towns)})
    encoder = TableEncoder.fit(frame)
    words = encoder.columns[0].categories
    assert words == ("zz", *(f"t{row:03}" for row in range(99)))
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    rows = pandas.DataFrame({"town": ["t005", "t080", "never seen", ""], "street": ["zz"] * 4})
    features = again.transform(rows)
    assert features.shape[1] == len(encoder.feature_names) == 2 * (64 + 1 + 1)
    assert np.array_equal(features, encoder.transform(rows))
    assert features[:, :64].sum(axis=1).tolist() == [1, 0, 0, 0]
    assert encoder.columns[0].places(features[:, 64]).tolist() == [6, 81, 101, 100]
    assert features[:, 65].tolist() == [0, 0, 0, 1], "a missing one is known as missing"
    fitted = encoder.transform(frame)[frame.town != "", 64]
    assert abs(fitted.mean()) < 1e-6, "standardised, like numbers"
    assert abs(fitted.std() - 1) < 1e-6
    said = [news for news in again.news(rows) if "'town'" in news]
    assert len(said) == 1
    assert "(first: 'never seen')" in said[0]


def test_places_are_whole_up_to_a_million_words() -> None:
    words = tuple(map(str, range(1_000_000)))
    column = Column("town", "category", False, 5e5, 3e5, words)
    feature = np.asarray(column.encode(np.array(words, object), np.zeros(len(words), bool))[-1], np.float32)
    assert np.array_equal(column.places(feature), np.arange(len(words)))


def test_sixty_four_categories_are_all_told_apart() -> None:
    frame = pandas.DataFrame({"town": [f"t{row % 64}" for row in range(200)]})
    assert TableEncoder.fit(frame).transform(frame).sum(axis=1).min() == 1  # warnings are errors


def test_a_column_to_leave_out_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no column 'siez'.*--ignore"):
        load(people(tmp_path), ignore=["siez"])


def test_blanks_around_names_of_columns_do_not_matter(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "size, the answer ,who \n1,yes,a\n2,no,b\n3,yes,c\n4,no,d\n")
    data = load(path, label="the answer ", id="who ", ignore=[" who"])
    assert (data.class_names, data.ids.tolist()) == (("no", "yes"), list("abcd"))


def test_excel_writes_utf_16(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("größe\tlabel\n1\tjä\n2\tnö\n3\tjä\n4\tnö\n", encoding="utf-16")
    assert load(tmp_path / "x.csv").class_names == ("jä", "nö")


def test_another_encoding_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,label\n1,jä\n2,nö\n", encoding="cp1252")
    with pytest.raises(
        ValueError, match=r"is not text in UTF-8: it has a byte 0xe4\. Save it as UTF-8.*iconv"
    ):
        load(tmp_path / "x.csv")


def test_a_quantity_is_no_label(tmp_path: Path) -> None:
    rows = "".join(f"{row},{row / 7}\n" for row in range(1, 30))
    with pytest.raises(ValueError, match=r"29 of 29 different labels .* Is this a quantity"):
        load(write(tmp_path / "x.csv", "a,label\n" + rows))


def test_options_of_another_kind_of_data_are_refused(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"people\.csv takes no option 'size'; it takes label, "):
        load(people(tmp_path), size=32)
    with pytest.raises(ValueError, match="takes no option 'label'; it takes "):
        load(pictures, label="x")
    with pytest.raises(ValueError, match=r"x\.npz takes no option 'id'"):
        load(npz(tmp_path, inputs=np.zeros((4, 2)), labels=np.array([0, 1, 0, 1])), id="x")


def test_rows_without_a_label_are_left_out_on_request(tmp_path: Path) -> None:
    text = "n;a;label\nr0;1,5;x\nr1;2;\nr2;3;y\nr3;4; \nr4;0,5;x\nr5;1;y\n"
    path = write(tmp_path / "x.csv", text)
    with pytest.warns(UserWarning, match="x.csv: 2 of 6 rows have no 'label' and are left out") as told:
        data = load(path, skip_unlabelled=True, ignore=["n"])
    assert told[0].filename == __file__
    assert data.given_labels.tolist() == [0, 1, 0, 1]
    assert data.ids.tolist() == [0, 2, 4, 5], "their numbers in the file"
    assert data.cells["a"].tolist() == ["1,5", "3", "0,5", "1"]
    assert data.encoder.columns[0].mean == 1.5, "a decimal comma is still one"
    with pytest.warns(UserWarning, match="left out"):
        assert load(path, skip_unlabelled=True, id="n").ids.tolist() == ["r0", "r2", "r4", "r5"]
    with pytest.warns(UserWarning, match="left out"), pytest.raises(ValueError, match="there is no row"):
        load(write(tmp_path / "y.csv", "a,label\n1,\n2,\n"), skip_unlabelled=True)
    for name in "abcd":
        Image.new("L", (4, 4)).save(tmp_path / f"{name}.png")
    pictures = write(tmp_path / "z.csv", "file,label\na.png,x\nb.png,\nc.png,y\nd.png,x\na.png,y\n")
    with pytest.warns(UserWarning, match="1 of 5 rows have no 'label'"):
        assert load(pictures, skip_unlabelled=True).ids.tolist() == ["a.png", "c.png", "d.png", "a.png"]


def test_columns_that_float32_cannot_hold_are_named(tmp_path):
    seconds = 1.7e9 + np.arange(40.0)
    x = np.stack([np.linspace(0, 1, 40), np.full(40, 0.1), seconds], axis=1)
    y = np.arange(40) % 2
    np.savez(tmp_path / "times.npz", x=x, y=y)
    with pytest.warns(UserWarning, match=r"column 2 of .* \(first value: 1700000000.0\)") as caught:
        load(tmp_path / "times.npz")
    assert caught[0].filename == __file__
    np.savez(tmp_path / "whole.npz", x=x.astype(np.int64), y=y)
    with pytest.warns(UserWarning, match="column 2 .* subtract its mean"):
        load(tmp_path / "whole.npz")
    np.savez(tmp_path / "centred.npz", x=x - x.mean(0), y=y)
    load(tmp_path / "centred.npz")  # warnings are errors
    x[3, 0] = np.nan
    np.savez(tmp_path / "nan.npz", x=x[:, :2], y=y)
    with pytest.raises(ValueError, match="row 3 has a NaN"):
        load(tmp_path / "nan.npz")


def test_a_column_called_file_is_a_list_of_pictures_if_it_names_some(pictures: Path) -> None:
    """Beside other columns, too, as a camera's software exports it."""
    names = [f"cat/{n}.png" for n in range(3)] + [f"dog/deep/{n}.png" for n in range(3)]
    rows = [f"{name},{name[:3]},{n}" for n, name in enumerate(names)]
    assert load(write(pictures / "list.csv", "\n".join(["file,label,iso", *rows]))).kind == "image"
    rows = [f"report {n},{'ab'[n % 2]},{n}" for n in range(6)]
    assert load(write(pictures / "table.csv", "\n".join(["file,label,iso", *rows]))).kind == "table"


@pytest.mark.parametrize(
    ("column", "bad"), [("x", ["a", "b"]), ("x", b"caf\xe9"), ("label", ["a"]), ("label", b"a")]
)
@pytest.mark.parametrize("row", [0, 7])
def test_a_cell_that_is_no_single_value_is_named_wherever_it_is(
    tmp_path: Path, column: str, bad: Any, row: int
) -> None:
    frame = pandas.DataFrame(
        {"x": list("uvwxyz") * 4, "z": range(24), "label": ["a", "b"] * 12}, dtype=object
    )
    frame.at[row, column] = bad
    path = tmp_path / "rows.parquet"
    if isinstance(bad, bytes):  # a column of Parquet has one type
        frame[column] = [cell if isinstance(cell, bytes) else cell.encode() for cell in frame[column]]
        frame.to_parquet(path)
        row = 0
    else:
        path = tmp_path / "rows.jsonl"
        frame.to_json(path, orient="records", lines=True)
    what = "bytes" if isinstance(bad, bytes) else "lists"
    with pytest.raises(
        ValueError, match=rf"{path.name}: column '{column}' holds {what} \(first: row {row}\)"
    ):
        load(path)


@pytest.mark.parametrize("unit", ["s", "us"])
def test_dates_of_any_year(tmp_path: Path, unit: str) -> None:
    days = np.array(["0001-01-01", "1969-12-31", "1970-01-02", "9999-12-31"] * 6, f"datetime64[{unit}]")
    frame = pandas.DataFrame({"when": days, "label": ["a", "b"] * 12})
    frame.to_parquet(tmp_path / "rows.parquet")
    data = load(tmp_path / "rows.parquet")
    assert data.encoder is not None
    (when,) = data.encoder.columns
    assert when.kind == "date"
    found = data.inputs[:4, 0].astype(np.float64) * when.std + when.mean
    assert np.allclose(found, [-719162, -1, 1, 2932896], atol=1)


@pytest.mark.parametrize("shape", [(0, 4), (6, 0), (6, 0, 5, 3), (6, 5, 5, 0)])
def test_an_array_that_holds_nothing(tmp_path: Path, shape: tuple[int, ...]) -> None:
    dtype = np.float32 if len(shape) == 2 else np.uint8
    np.savez(tmp_path / "x.npz", inputs=np.zeros(shape, dtype), labels=np.arange(shape[0]) % 2)
    with pytest.raises(ValueError, match=r"x\.npz: inputs of shape .* hold nothing"):
        load(tmp_path / "x.npz")
