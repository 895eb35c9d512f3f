"""Where rows come from, a data set by name or files by path: the one place that picks the reader."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tolerant import plugins
from tolerant.data.column_roles import guess_roles, kind_of_rows, picture_column, with_label
from tolerant.data.dataset import Kind, NoisyDataset
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.published_sets import CARDS
from tolerant.data.readers.folder import load_folder, load_picture, read_folder, read_picture
from tolerant.data.readers.hub import PREFIX, is_hub_folder
from tolerant.data.readers.listed import load_listed, read_listed
from tolerant.data.readers.npz import load_npz, read_new_npz
from tolerant.data.readers.pictures import Sides
from tolerant.data.readers.row_files import check_table, read_frame
from tolerant.data.readers.table import load_table, read_table
from tolerant.data.readers.texts import load_texts, read_texts
from tolerant.data.readers.walk import SUFFIXES as PICTURES
from tolerant.hints import did_you_mean
from tolerant.regular import check_regular


@dataclass(frozen=True)
class Reader:
    """One kind of source. Options are the keyword-only arguments of its two functions."""

    load: Callable[..., NoisyDataset]
    read: Callable[..., Unlabelled]


def _load_named(name: Path, *, split: str = "train", root: Any = None) -> NoisyDataset:
    return CARDS[str(name)].load(split, root)


def _read_named(name: Path, encoder: InputEncoder, *, split: str = "train", root: Any = None) -> Unlabelled:
    rows = CARDS[str(name)].load(split, root)
    return Unlabelled(rows.inputs, rows.ids, rows.kind)


READERS = {
    "named": Reader(_load_named, _read_named),
    "folder": Reader(load_folder, read_folder),
    "picture": Reader(load_picture, read_picture),
    "npz": Reader(load_npz, read_new_npz),
    "list of pictures": Reader(load_listed, read_listed),
    "texts": Reader(load_texts, read_texts),
    "table": Reader(load_table, read_table),
}
_OF_KIND = {"image": "list of pictures", "text": "texts", "table": "table"}  # the reader of a file of rows


def load(
    source: str | os.PathLike[str],
    *,
    split: str | None = None,
    config: str | None = None,
    root: str | os.PathLike[str] | None = None,
    at_most: Sides = None,
    frame: Any = None,
    kind: Kind | None = None,
    **options: Any,
) -> NoisyDataset:
    """A data set by name, or from a folder of pictures or a file of rows.

    - A file of rows ends in .csv, .tsv, .txt, .jsonl (these also with .gz, .bz2 or .xz), .parquet or .npz.
    - A data set of a hub is ``hf:OWNER/NAME``, a folder that `datasets` has saved, or one of Parquet files.
    - A table with a column of pictures, or with one called file that names them, is a list of pictures. A
      table whose only column beside the label is called text is a set of texts, as is one with nothing else
      beside the columns that ``text`` names.

    Further options are those of `load_folder`, `load_listed`, `load_table`, `load_texts` or `load_npz`.

    Args:
        source: a path, or a name of `CARDS`: "digits", "fashion-mnist", "cifar10", "cifar100", ...
        split: "train" (the default) or "test" of a named one; the sub-folder of a folder of pictures; the
            split of a hub's data set.
        config: the configuration of a hub's data set, if it has several.
        root: where the named ones lie; by default TOLERANT_DATA, or the platform's cache.
        at_most: of picture files without a size: those that differ in size or are larger become squares of
            this many pixels, all that an extractor of features looks at (`tolerant.data.features`). Of
            several numbers the first that is no smaller than the pictures, else the last.
        frame: the rows of a file or of a hub's data set as a DataFrame, if they are read already.
        kind: "image", "text" or "table", what the rows of a file are; None: as options and columns say.

    >>> data = load("digits", split="test")
    >>> data.inputs.shape, data.num_classes
    ((359, 8, 8, 1), 10)
    """
    name = os.fspath(source)
    path, reader = _find(name)
    if reader == "named" and root is not None:
        options["root"] = root
    if split is not None:
        if reader not in ("named", "folder") and not _is_hub(name):
            raise ValueError(
                f"split is for named data sets, folders and hubs' data sets; {path} has none. Leave it out"
            )
        options["split"] = split
    if config is not None:
        options["config"] = config
    if reader == "folder" and options.get("group") is not None:
        raise ValueError(
            f"{path} is a folder, which does not say which pictures belong together. List them in a CSV "
            "file with the columns file and label, and one to be named by group=... (--group)"
        )
    if reader == "rows":
        frame, options = _read_rows(name, _stripped(options), frame)
        found_kind, options = kind_of_rows(frame, with_label(frame, options))
        reader = _OF_KIND[kind or found_kind]
    found = _reader(reader)
    _check_options(found.load, path, options)
    # A frame is read once, though its columns had a say.
    fitted: dict[str, Any] = {} if frame is None else {"frame": frame}
    if "at_most" in inspect.signature(found.load).parameters:
        fitted["at_most"] = at_most
    return found.load(path, **options, **fitted)


@dataclass(frozen=True)
class Source:
    """A data set's name, folder or file, and the options it is read with."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of `load`: split, root, label, id, text, size ..."""
    frame: Any = field(default=None, repr=False, compare=False)
    """Its rows, if they are read already."""

    def load(self, encoder: InputEncoder | None = None, *, at_most: Sides = None) -> NoisyDataset:
        """All rows with their given labels.

        ``encoder``: one that was fitted to them before. ``at_most``: for picture files, that of `load`.
        """
        fitted: dict[str, Any] = {}
        if encoder is not None:
            fitted["kind"] = encoder.kind
            fitted |= {} if encoder.encoder is None else {"encoder": encoder.encoder}
        return load(self.name, **self.options, **fitted, at_most=at_most, frame=self.frame)

    def read(self, encoder: InputEncoder, like: Source | None = None, device: str = "cpu") -> NoisyDataset:
        """New rows without labels, as the model takes them: all are given 0. ``device``: of an extractor.

        ``like`` is the source of the training rows: its options name the columns of files, texts and ids,
        unless those of this one do.
        """
        path, reader = _find(self.name)
        options: dict[str, Any] = _stripped(dict(self.options))
        if reader in ("folder", "picture") and encoder.kind != "image":
            raise encoder.other_kind(path)
        columns: dict[str, Any] = {}
        if reader == "rows":
            columns["frame"], options = _read_rows(self.name, options)
            reader = _OF_KIND[encoder.kind]
            if encoder.kind == "image" and (found := picture_column(columns["frame"], options)):
                columns["file"] = found
            known: dict[str, Any] = _stripped(dict(like.options)) if like is not None else {}
            columns |= {name: known[name] for name in ("file", "text") if known.get(name)}
            if known.get("id") in columns["frame"].columns:  # new rows may lack a column of ids
                columns["id"] = known["id"]
        read = _reader(reader).read
        _check_options(read, path, options, " for rows of this run")
        taken = inspect.signature(read).parameters
        columns = {name: column for name, column in columns.items() if name in taken}
        return encoder.unlabelled(read(path, encoder, **columns | options), self.name, device)

    def with_roles(self, say: Callable[[str], None]) -> Source:
        """The same source, its columns of names and texts said where nobody has; ``say`` is told of them."""
        _, reader = _find(self.name)
        options: dict[str, Any] = _stripped(dict(self.options))
        if reader != "rows" or "file" in options:
            return self
        frame, rest = _read_rows(self.name, options)
        which = {key: options[key] for key in options.keys() - rest.keys()}
        if (found := with_label(frame, rest)) != rest:
            say(f"Column {found['label']!r} has the labels: --label {found['label']}")
        if found.get("label", "label") in frame.columns and kind_of_rows(frame, found)[0] == "table":
            found = guess_roles(frame, found, say)
        return Source(self.name, which | found, frame)


def _added(suffix: str) -> Reader | None:
    """What another package reads such files with (`tolerant.plugins`)."""
    ours = suffix.lower() in (".csv", ".tsv", ".jsonl", ".parquet", ".gz", ".bz2", ".xz", "")
    found: Reader | None = None if ours else plugins.find("tolerant.readers", suffix.lower()[1:], Reader)
    return found


def _reader(name: str) -> Reader:
    found = READERS.get(name) or _added(name)
    assert found is not None  # `_find` has just found it
    return found


def _find(name: str) -> tuple[Path, str]:
    """Where it is, and which of `READERS` reads it; "rows" for a table, of which more must be known."""
    if name in CARDS:
        return Path(name), "named"
    path = Path(name).expanduser()
    if _is_hub(name):
        return path, "rows"
    if path.is_dir():
        return path, "folder"
    if not path.exists():
        raise FileNotFoundError(f"{name!r} is not a data set, file or folder. {_meant(name, path)}")
    check_regular(path)
    if path.suffix.lower() == ".npz":
        return path, "npz"
    if _added(path.suffix) is not None:
        return path, path.suffix
    if path.name.lower().endswith(PICTURES):
        return path, "picture"
    check_table(path)
    return path, "rows"


def _meant(name: str, path: Path) -> str:
    """What a name that is nothing may stand for: a data set, or a file or folder beside it."""
    folder = path.parent
    beside = sorted(os.listdir(folder)) if folder.is_dir() else []
    if near := did_you_mean(name, CARDS) or did_you_mean(path.name, beside):
        return near
    if not path.suffix and path.name == name:
        return f"The named ones are {', '.join(CARDS)}"
    if folder.is_dir():
        return f"There is no {path.name} in {folder.resolve()}"
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        return f"On the Hugging Face hub? {PREFIX}{name}"
    return f"There is no folder {folder}"


def is_path(name: str) -> bool:
    """Whether a source is a file or folder, and not a name."""
    return name not in CARDS and not name.startswith(PREFIX)


def _is_hub(name: str) -> bool:
    folder = Path(name).expanduser()
    return name.startswith(PREFIX) or (folder.is_dir() and is_hub_folder(folder))


def _read_rows(name: str, options: dict[str, Any], frame: Any = None) -> tuple[Any, dict[str, Any]]:
    """The rows as a frame, unless they are given as one, and the options but for those of a hub alone."""
    which = {key: options[key] for key in ("split", "config") if key in options} if _is_hub(name) else {}
    path = name if name.startswith(PREFIX) else Path(name).expanduser()
    rest = {key: value for key, value in options.items() if key not in which}
    return read_frame(path, **which) if frame is None else frame, rest


def _stripped(value: Any) -> Any:
    """Options without blanks around their words, as the names of columns are read."""
    if isinstance(value, dict):
        return {name: _stripped(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_stripped(one) for one in value]
    return value.strip() if isinstance(value, str) else value


_PASSED_ON = ("frame", "at_most")


def _options_of(function: Callable[..., Any]) -> list[str]:
    """The keyword-only arguments of a reader's function, but for what `load` itself passes on."""
    parameters = inspect.signature(function).parameters.values()
    return [
        each.name for each in parameters if each.kind is each.KEYWORD_ONLY and each.name not in _PASSED_ON
    ]


def _check_options(
    function: Callable[..., Any], path: Path, options: Mapping[str, Any], use: str = ""
) -> None:
    """A ValueError for the first option that means nothing for this source."""
    known = _options_of(function)
    for name in options:
        if name not in known:
            taken = ", ".join(known) or "none"
            raise ValueError(f"{path} takes no option {name!r}{use}; it takes {taken}")
