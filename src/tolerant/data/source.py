"""Where rows come from, a data set by name or files by path: the one place that picks the reader."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tolerant import plugins
from tolerant.data.column_roles import guess_roles
from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.published_sets import CARDS
from tolerant.data.readers.folder import load_folder, read_folder
from tolerant.data.readers.listed import load_listed, read_listed
from tolerant.data.readers.npz import load_npz, read_new_npz
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
    root: str | os.PathLike[str] | None = None,
    at_most: int | None = None,
    **options: Any,
) -> NoisyDataset:
    """A data set by name, or from a folder of pictures or a file of rows.

    A file of rows ends in .csv, .tsv, .jsonl (these also with .gz, .bz2 or .xz), .parquet or .npz. A
    table with a column called file that names pictures is a list of them; one whose only column beside
    the label is called text is a set of texts. Further options are those of `load_folder`, `load_listed`,
    `load_table`, `load_texts` or `load_npz`.

    Args:
        source: a path, or a name of `CARDS`: "digits", "fashion-mnist", "cifar10", "cifar100", ...
        split: "train" (the default) or "test" of a named one; the sub-folder of a folder of pictures.
        root: where the named ones lie; by default TOLERANT_DATA, or the platform's cache.
        at_most: of picture files without a size: those that differ in size or are larger become squares of
            this many pixels, all that an extractor of features looks at (`tolerant.data.features`).

    >>> data = load("digits", split="test")
    >>> data.inputs.shape, data.num_classes
    ((359, 8, 8, 1), 10)
    """
    name, frame = os.fspath(source), None
    path, reader = _find(name)
    if reader == "named" and root is not None:
        options["root"] = root
    if split is not None:
        if reader not in ("named", "folder"):
            raise ValueError(f"split is for named data sets and folders; {path} has none")
        options["split"] = split
    if reader == "folder" and options.get("group") is not None:
        raise ValueError(
            f"{path} is a folder, which does not say which pictures belong together. List them in a CSV "
            "file with the columns file and label, and one to be named by group=... (--group)"
        )
    if reader == "rows":
        frame = read_frame(path)
        reader, options = _reader_of_rows(frame, _stripped(options))
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
    """Of `load`: split, root, label, id, text, size ..."""

    def load(self, encoder: TableEncoder | None = None, *, at_most: int | None = None) -> NoisyDataset:
        """All rows with their given labels.

        ``encoder``: for a table, one that was fitted before. ``at_most``: for picture files, that of `load`.
        """
        fitted: dict[str, Any] = {} if encoder is None else {"encoder": encoder}
        return load(self.name, **self.options, **fitted, at_most=at_most)

    def read(self, encoder: InputEncoder, like: Source | None = None, device: str = "cpu") -> NoisyDataset:
        """New rows without labels, as the model takes them: all are given 0. ``device``: of an extractor.

        ``like`` is the source of the training rows: its options name the columns of files and texts, unless
        those of this one do.
        """
        path, reader = _find(self.name)
        options: dict[str, Any] = _stripped(dict(self.options))
        if reader == "folder" and encoder.kind != "image":
            raise encoder.other_kind(path)
        columns = {}
        if reader == "rows":
            reader = _OF_KIND[encoder.kind]
            # Not the id: the training rows may have had a column of ids that the new ones lack.
            known: dict[str, Any] = _stripped(dict(like.options)) if like is not None else {}
            columns = {name: known[name] for name in ("file", "text") if known.get(name)}
        read = _reader(reader).read
        _check_options(read, path, options, " for rows of this run")
        columns = {name: column for name, column in columns.items() if name in _options_of(read)}
        return encoder.unlabelled(read(path, encoder, **columns | options), self.name, device)

    def with_roles(self, say: Callable[[str], None]) -> Source:
        """The same source, its columns of names and texts said where nobody has; ``say`` is told of them."""
        path, reader = _find(self.name)
        options: dict[str, Any] = _stripped(dict(self.options))
        if reader != "rows" or "file" in options or "text" in options:
            return self
        frame = read_frame(path)
        if (
            options.get("label", "label") not in frame.columns
            or _reader_of_rows(frame, options)[0] != "table"
        ):
            return self
        return Source(self.name, guess_roles(frame, options, say))


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
    if path.is_dir():
        return path, "folder"
    if not path.exists():
        hint = did_you_mean(name, CARDS) or f"The named ones are {', '.join(CARDS)}"
        raise FileNotFoundError(f"{name!r} is not a data set, file or folder. {hint}")
    check_regular(path)
    if path.suffix.lower() == ".npz":
        return path, "npz"
    if _added(path.suffix) is not None:
        return path, path.suffix
    check_table(path)
    return path, "rows"


def _reader_of_rows(frame: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What a table holds, as the options or else its columns say, and the options with that said."""
    if "file" not in options and "text" not in options:
        roles = {options.get(role) for role in ("label", "true_label", "id", "group")} | {"label"}
        others = [column for column in frame.columns if column not in roles]
        if others in (["file"], ["text"]):
            options = {**options, others[0]: others[0]}
        elif "file" in others and str(frame["file"].iloc[0]).lower().endswith(PICTURES):
            options = {**options, "file": "file"}
    kind = "image" if "file" in options else "text" if "text" in options else "table"
    return _OF_KIND[kind], options


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
