"""The review page: one HTML file that shows suspects and takes a person's decisions.

Layout, style and behaviour lie in `template/`; they are put into one file here, so that the page needs no
network and can be mailed. Its content security policy names the hash of its own script and style: nothing
else runs, whatever the data holds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from tolerant.data.digest import content_digests
from tolerant.extras import extra
from tolerant.files import write_atomic
from tolerant.review.charts import curves, heat_map, percent, rate_in_words
from tolerant.review.thumbnails import EXAMPLE_PIXELS, thumbnails
from tolerant.suspects import Suspects
from tolerant.suspects.lost_classes import lost_classes

if TYPE_CHECKING:
    from tolerant.data.dataset import NoisyDataset

SCRIPTS = ("data.js", "store.js", "export.js", "cards.js", "view.js", "sample.js", "review.js")
MOST_SHOWN = 5_000
# Suspects whose nearest rows are shown, and as many more that have a note: 3,500 small pictures take 5 MB.
_WITH_EXAMPLES = 500
_MOST_EXAMPLE = 200  # characters of a text that is shown beside a suspect
_MOST_CHARACTERS = 2_000  # of a text: enough to judge it, and 5,000 of them stay under 10 MB
_MOST_IN_CELL = 500  # enough for a comment, and 5,000 rows with a few of them stay under 10 MB
_LEAST_COLUMNS = 40  # of a table, however many rows there are
_MOST_CELLS = 400_000  # some 8 MB: all columns, but where both rows and columns are many
Reason = tuple[str, str]
_RATE_MEANS = (
    "The share of wrong labels is an estimate from the model's predictions, by the labels of the rows that "
    "it is surest of. Its interval is as wide as rows between two classes, and the sampling error, leave it "
    "open. Mistakes that follow a rule which the model can learn from the inputs do not show. A sample "
    "that a person labels tells the share without bias: tolerant audit RUN --sample 100."
)


def write_page(
    path: str | os.PathLike[str],
    suspects: Suspects,
    dataset: NoisyDataset,
    *,
    title: str = "Label review",
    history: Mapping[str, Sequence[float | None]] | None = None,
    reasons: Sequence[Sequence[Reason]] = (),
    limit: int = MOST_SHOWN,
    sample: bool = False,
) -> None:
    """Write the review page of `suspects`, rows of `dataset`, to `path`.

    Args:
        path: the file, usually `report.html`; replaced whole or not at all.
        suspects: from :func:`tolerant.find_suspects` on all rows of `dataset`, in its order.
        dataset: where the pictures, texts or rows come from.
        title: what the data is called; heading of the page.
        history: numbers by epoch, one series a name, drawn as small charts.
        reasons: of the first suspects, what speaks for the suggestion: (column, its value) or (word, "").
        limit: the most suspects on the page, the most doubtful ones. A picture takes up to 6 kB.
        sample: they are rows drawn at random (:func:`tolerant.review.sample.draw_sample`): the page keeps the
            model's opinion to itself, and says how many labels of all are wrong by what is decided.

    Decisions are remembered by the browser under a hash of what is shown: writing the page again
    for the same suspects keeps them.
    """
    if len(dataset) != suspects.num_rows:
        raise ValueError(
            f"dataset must be the one the suspects come from, with {suspects.num_rows} rows; "
            f"got {len(dataset)}."
        )
    shown = suspects.head(limit)
    inputs = _inputs(shown, dataset)
    content = (
        _columns(shown)
        | {"digests": content_digests(dataset, shown.index)}
        | inputs
        | _evidence(shown, dataset, "pictures" in inputs)
    )
    content["reasons"] = [list(some) for some in reasons[: len(shown)]]
    # What a sample of the rows that nobody has reviewed says of all: the reviewed ones are right.
    content["sampleOf"] = 1.0 - suspects.num_reviewed / suspects.num_rows if sample else None
    kind = "image" if "pictures" in inputs else dataset.kind
    summary = _summary(suspects, shown, title, history or {})
    predicted = dataset.given_labels.copy()
    predicted[suspects.index] = suspects.suggested_labels
    lost = lost_classes(dataset.given_labels, predicted, suspects.class_names)
    summary |= {"kind": kind, "has_reasons": any(content["reasons"]), "lost_classes": lost, "sample": sample}
    write_atomic(path, _render(summary, content))


def _render(summary: Mapping[str, Any], content: Mapping[str, Any]) -> str:
    jinja2 = extra("jinja2")
    markup = extra("markupsafe").Markup
    folder = resources.files("tolerant.review") / "template"
    style = (folder / "page.css").read_text(encoding="utf-8")
    parts = "\n".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    script = f'(() => {{\n"use strict";\n{parts}}})();\n'
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    template = environment.from_string((folder / "page.html.j2").read_text(encoding="utf-8"))
    return template.render(
        summary,
        num="{:,}".format,
        style=markup(style),
        script=markup(script),
        style_hash=_csp_hash(style),
        script_hash=_csp_hash(script),
        data=markup(_json_for_script(content)),  # escaped there
    )


def _json_for_script(content: Mapping[str, Any]) -> str:
    """JSON that cannot end its script element, nor start a comment or a tag in it.

    ASCII only, so U+2028 and U+2029 are escapes too and the file reads the same in any encoding.
    """
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _csp_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _columns(shown: Suspects) -> dict[str, Any]:
    columns = {
        "classes": list(shown.class_names),
        "ids": [str(row_id) for row_id in shown.ids],
        "index": shown.index.tolist(),
        "given": shown.given_labels.tolist(),
        "suggested": shown.suggested_labels.tolist(),
        "p": np.round(shown.p_y, 4).tolist(),
        "confidence": np.round(shown.confidence, 4).tolist(),
        "kept": None if shown.kept is None else shown.kept.tolist(),
        "prunedAt": shown.prune_epochs(),
    }
    identity = [columns[name] for name in ("classes", "ids", "given", "suggested")]
    run = hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:16]
    return columns | {"run": run}


def _inputs(shown: Suspects, dataset: NoisyDataset) -> dict[str, Any]:
    files = () if dataset.files is None else dataset.files[shown.index]
    if dataset.kind == "image" or (len(files) and all(map(os.path.isfile, files))):
        return {"pictures": thumbnails(dataset, shown.index)}
    if dataset.kind == "text":
        return {"texts": [_cut(str(text), _MOST_CHARACTERS) for text in dataset.inputs[shown.index]]}
    names, values = columns_and_values(dataset, shown.index)
    return {"features": names, "values": values}


def _evidence(shown: Suspects, dataset: NoisyDataset, pictures: bool) -> dict[str, Any]:
    """Notes on suspects, and the rows of the given and the suggested class that are nearest to the first of
    them and to those with a note."""
    found = shown.evidence
    if found is None or not (pictures or dataset.kind == "text"):
        return {}
    notes = found.notes()
    noted = [number for number, note in enumerate(notes) if note and number >= _WITH_EXAMPLES]
    chosen = [*range(min(_WITH_EXAMPLES, len(notes))), *noted[:_WITH_EXAMPLES]]
    slots = np.concatenate([found.near_given, found.near_suggested, found.twin[:, None]], axis=1)[chosen]
    rows, place = np.unique(slots, return_inverse=True)
    place = place.reshape(slots.shape) - int(len(rows) > 0 and rows[0] < 0)  # -1 stays -1
    rows = rows[rows >= 0]
    small = thumbnails(dataset, rows, EXAMPLE_PIXELS) if pictures else None
    words = None if pictures else [_cut(str(text), _MOST_EXAMPLE) for text in dataset.inputs[rows]]
    return {
        "notes": notes,
        "near": dict(zip(map(str, chosen), place.tolist(), strict=True)),
        "exampleLabels": dataset.given_labels[rows].tolist(),
        "exampleIds": [str(dataset.ids[row]) for row in rows],
        "examplePictures": small,
        "exampleTexts": words,
    }


def columns_and_values(dataset: NoisyDataset, index: np.ndarray) -> tuple[list[str], list[list[str]]]:
    """Names and values of the columns, as text, of the rows of `index`.

    The cells as they stand in the table where the data set has them; else the features, under the encoder's
    names or by number.
    """
    if dataset.cells is not None:
        used = {column.name for column in dataset.encoder.columns} if dataset.encoder else set(dataset.cells)
        return _cells(dataset.cells, index, used, dataset.text_columns)
    rows = np.asarray(dataset.inputs[index])
    numbered = [f"feature {number}" for number in range(1, rows.shape[1] + 1)]
    names = numbered if dataset.encoder is None else [*map(str, dataset.encoder.feature_names)]
    most = _most_columns(len(index))
    return names[:most], [[f"{v:.5g}" for v in row[:most]] for row in rows.tolist()]


def _most_columns(num_rows: int) -> int:
    return max(_LEAST_COLUMNS, _MOST_CELLS // max(num_rows, 1))


def _cells(
    frame: Any, index: np.ndarray, used: set[str], texts: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    used = used | set(texts)
    ours = [name for name in frame.columns if name in used]
    others = [name for name in frame.columns if name not in used]
    # Of a wide table, columns that are not used are shown too: a comment tells a person more than feature 38.
    most = _most_columns(len(index))
    room = max(most - len(others), most // 2)
    names = [*ours[:room], *others][:most]
    shown = frame[names].iloc[index]
    columns = []
    for name in names:
        cells = zip(shown[name].astype(str).tolist(), shown[name].isna().tolist(), strict=True)
        longest = _MOST_CHARACTERS if name in texts else _MOST_IN_CELL
        columns.append(["missing" if gap or not word.strip() else _cut(word, longest) for word, gap in cells])
    titles = [str(name) if name in used else f"{name} (not used)" for name in names]
    return titles, [list(row) for row in zip(*columns, strict=True)]


def _cut(text: str, most: int) -> str:
    """The first ``most`` characters, and a note if there were more."""
    return text if len(text) <= most else f"{text[:most]} … (cut here)"


def _summary(
    suspects: Suspects, shown: Suspects, title: str, history: Mapping[str, Sequence[float | None]]
) -> dict[str, Any]:
    rate = suspects.noise_rate
    headline, detail = rate_in_words(rate)
    names = suspects.class_names
    pairs = set(zip(shown.suggested_labels.tolist(), shown.given_labels.tolist(), strict=True))
    return {
        "title": title,
        "num_rows": suspects.num_rows,
        "num_suspects": len(suspects),
        "num_shown": len(shown),
        "num_reviewed": suspects.num_reviewed,
        "weak": suspects.weak,
        "num_classes": len(names),
        "has_kept": suspects.kept is not None,
        "has_notes": shown.evidence is not None and any(shown.evidence.notes()),
        "first_classes": names[:4],
        "kept_share": None if suspects.kept_share is None else percent(suspects.kept_share),
        "num_kept": suspects.num_kept,
        "noise": {
            "headline": headline,
            "detail": detail,
            "unsure": rate.at_least or rate.vague,
            "lower_bound": rate.at_least,
            "x": f"{100 * rate.low:.2f}",
            "width": f"{max(100 * (rate.high - rate.low), 0.4):.2f}",
            "mark": f"{100 * rate.estimate - 0.3:.2f}",
            "meaning": _RATE_MEANS,
        },
        "heat": heat_map(suspects.transition, names, pairs),
        "curves": curves(history),
    }
