"""Tables: every column beside the label is something to learn from."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoders.cells import leave_out
from tolerant.data.encoders.columns import TableEncoder
from tolerant.data.encoders.inputs import InputEncoder, Unlabelled
from tolerant.data.readers.labels import check_columns, check_ignored, ids_or_numbers, labelled_rows
from tolerant.data.readers.row_files import read_frame
from tolerant.data.readers.texts import check_texts, text_names, texts_in
from tolerant.extras import extra
from tolerant.hints import warn_caller

_FEWEST_TO_JUDGE = 20  # in fewer rows a column may agree with the label by chance


def load_table(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    label: str = "label",
    true_label: str | None = None,
    id: str | None = None,
    group: str | None = None,
    text: str | Sequence[str] = (),
    ignore: Sequence[str] = (),
    categorical: Sequence[str] = (),
    encoder: TableEncoder | None = None,
    class_names: Sequence[str] | None = None,
    min_per_class: int = 2,
    skip_unlabelled: bool = False,
) -> NoisyDataset:
    """A data set from a CSV, TSV, JSON Lines or Parquet file.

    Args:
        path: the file.
        frame: its rows as a DataFrame, if they are read already; `path` then only names them.
        label: the column of given labels.
        true_label: the column of true labels.
        id: the column of row names.
        group: the column that says which rows belong together (`NoisyDataset.groups`); no feature.
        text: the columns of free text, read as words beside the other columns.
        ignore: columns to leave out, which a person still sees.
        categorical: columns of codes that look like numbers.
        encoder: that of the training rows, for rows that come later.
        class_names: those of the training rows, for rows that come later.
        min_per_class: fewest rows a class may have.
        skip_unlabelled: leave out rows with an empty label; without `id` the others keep their numbers.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    ...     _ = file.write("size,colour,kind\\n1.5,red,apple\\n0.2,blue,plum\\n1.4,red,apple\\n0.3,red,plum")
    ...     file.flush()
    ...     rows = load_table(file.name, label="kind")
    >>> rows.class_names, rows.given_labels.tolist(), rows.encoder.feature_names
    (('apple', 'plum'), [0, 1, 0, 1], ('size', 'colour = red', 'colour = blue'))
    """
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, true_label=true_label)
    check_texts(frame, path, text, label=label, ignore=ignore, categorical=categorical)
    check_ignored(frame, path, ignore, label)
    rows = labelled_rows(path, frame, label=label, id=id, group=group, skip_unlabelled=skip_unlabelled)
    given, true, names = rows.encode(path, true_label, class_names, min_per_class)
    written = text_names(text)
    used = {label, true_label, id, group, *written, *ignore, *frame.attrs.get("index", ())}
    columns = rows.frame[[name for name in frame.columns if name not in used]]
    if encoder is None:
        _warn_of_copies(columns, given, label)
        encoder, inputs = TableEncoder.fit_transform(columns, categorical=categorical)
    else:
        inputs = encoder.transform(columns)
    seen_only = [*ignore] if group is None else [group, *ignore]
    shown = dict.fromkeys([*written, *(c.name for c in encoder.columns), *seen_only])
    cells = rows.frame[[name for name in shown if name not in (label, true_label, id)]]
    return NoisyDataset(
        inputs,
        given,
        true,
        names,
        rows.ids,
        "table",
        encoder,
        cells=cells,
        groups=rows.groups,
        texts=texts_in(rows.frame, written) if written else None,
        text_columns=written,
    )


def read_table(
    path: Path,
    encoder: InputEncoder,
    *,
    frame: Any = None,
    text: str | Sequence[str] = (),
    id: str | None = None,
) -> Unlabelled:
    """New rows, as the columns of the training rows were encoded; warns of what those never had."""
    if encoder.encoder is None:  # trained on an array of numbers: nobody knows which column is which
        raise encoder.other_kind(path)
    frame = read_frame(path) if frame is None else frame
    check_columns(frame, path, id=id)
    check_texts(frame, path, text)
    if text and encoder.text is None:
        raise ValueError(
            f"{path}: text (--text) names {text_names(text)[0]!r}, and the model was trained on a table "
            "without text. Leave it out"
        )
    inputs = encoder.encoder.transform(frame)
    for news in encoder.encoder.news(frame):
        warn_caller(f"{path}: {news}")
    return Unlabelled(inputs, ids_or_numbers(frame, id), "table", texts_in(frame, text) if text else None)


def _warn_of_copies(features: Any, given: np.ndarray, label: str) -> None:
    """A column that repeats the label, in whatever words, makes every label look right."""
    if len(given) < _FEWEST_TO_JUDGE:
        return
    pandas = extra("pandas")
    few = _FEWEST_TO_JUDGE
    num_labels = len(set(given[:few].tolist()))
    for name, column in features.items():
        # Nearly every column is done with here, by one look at a few cells: a table may have 100,000.
        if len(set(map(str, np.asarray(column.array[:few], object)))) != num_labels:
            continue
        for rows in (min(1000, len(given)), len(given)):
            codes, words = pandas.factorize(features[name].iloc[:rows].astype(str))
            labels = len(np.unique(given[:rows]))
            pairs = len(np.unique(codes * (given.max() + 1) + given[:rows]))
            if not pairs == len(words) == labels:
                break
        else:
            warn_caller(
                f"column {name!r} is {label!r} in other words, so every label will look right; "
                f"{leave_out(name)}"
            )
