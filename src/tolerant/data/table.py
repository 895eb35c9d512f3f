"""Tables, and tables with a column of text, as data sets."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tolerant.data.dataset import NoisyDataset
from tolerant.data.encoder import TableEncoder
from tolerant.data.frame import (
    check_columns,
    group_numbers,
    label_words,
    labelled_rows,
    read_frame,
    texts,
)
from tolerant.data.labels import encode_labels
from tolerant.extras import extra

_FEWEST_TO_JUDGE = 20  # in fewer rows a column may agree with the label by chance


def load_table(
    path: str | os.PathLike[str],
    *,
    frame: Any = None,
    label: str = "label",
    true_label: str | None = None,
    text: str | None = None,
    id: str | None = None,
    group: str | None = None,
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
        text: the column of text; without it every other column is a feature.
        id: the column of row names.
        group: the column that says which rows belong together (`NoisyDataset.groups`); no feature.
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
    check_columns(frame, path, label=label, true_label=true_label, text=text, id=id, group=group)
    for name in ignore:
        check_columns(frame, path, ignore=name)
    if label in ignore:
        raise ValueError(
            f"{path}: ignore (--ignore) names {label!r}, the column of labels; leave one of them out"
        )
    if text is not None and categorical:
        raise ValueError(
            f"{path}: categorical (--categorical) is for the columns of a table; with text={text!r} only "
            "that one is read. Leave one of the two out"
        )
    ids = None if id is None else frame[id].to_numpy(object).astype(str)
    if skip_unlabelled:
        rows = labelled_rows(frame, label, path)
        frame, ids = frame.iloc[rows], rows if ids is None else ids[rows]
    given, names = encode_labels(label_words(frame, label, path), path, class_names, min_per_class)
    groups = None if group is None else group_numbers(frame, group, label, path)
    true = None
    if true_label is not None:
        true, _ = encode_labels(label_words(frame, true_label, path), path, names)
    if text is not None:
        return NoisyDataset(texts(frame, text), given, true, names, ids, "text", groups=groups)
    used = {label, true_label, id, group, *ignore, *frame.attrs.get("index", ())}
    features = frame[[name for name in frame.columns if name not in used]]
    if encoder is None:
        _warn_of_copies(features, given, label)
        encoder = TableEncoder.fit(features, categorical=categorical)
    inputs = encoder.transform(features)
    seen_only = [*ignore] if group is None else [group, *ignore]
    shown = dict.fromkeys([*(c.name for c in encoder.columns), *seen_only])
    cells = frame[[name for name in shown if name not in (label, true_label, id)]]
    return NoisyDataset(inputs, given, true, names, ids, "table", encoder, cells=cells, groups=groups)


def _warn_of_copies(features: Any, given: np.ndarray, label: str) -> None:
    """A column that repeats the label, in whatever words, makes every label look right."""
    pandas = extra("pandas")
    for name in features.columns if len(given) >= _FEWEST_TO_JUDGE else ():
        for rows in (1000, len(given)):  # nearly every column is done with after the first
            codes, words = pandas.factorize(features[name].iloc[:rows].astype(str))
            labels = len(np.unique(given[:rows]))
            pairs = len(np.unique(codes * (given.max() + 1) + given[:rows]))
            if not pairs == len(words) == labels:
                break
        else:
            warnings.warn(
                f"column {name!r} is {label!r} in other words, so every label will look right; "
                f"leave it out: ignore=[{name!r}] (--ignore {name!r})",
                stacklevel=3,
            )
