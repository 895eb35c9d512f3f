"""The tables of `bench_models.py`: what `tolerant train` does by itself, beside the models of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from common import stored

from tolerant.markdown import markdown_table
from tolerant.report.comparison import unbroken
from tolerant.report.selection import NO_ROWS

FILES = {
    "tables": "models.jsonl",
    "small-tables": "models_small.jsonl",
    "tables-apart": "models_keel.jsonl",
    "tables-once-apart": "models_held_out.jsonl",
    "words-apart": "models_words_apart.jsonl",
    "mixed": "models_mixed.jsonl",
    "mixed-apart": "models_mixed_apart.jsonl",
    "texts": "models.jsonl",
    "texts-apart": "models_held_out_texts.jsonl",
}
# Of those kinds on which nothing was chosen, the README has these.
BRIEF = {
    "tables-apart": "tables",
    "words-apart": "tables with columns of many words",
    "texts-apart": "sets of texts",
}
COLUMNS = {
    "score": "score",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "ranking": "ranking",
    "time_s": "seconds",
}
OURS, CLEANLAB = "tolerant", "cleanlab, "
# What is done to the labels of one set of data: by seed, then by method, the row.
Problem = dict[int, dict[str, dict[str, Any]]]


def models(results: Path, kind: str) -> str:
    """Every method, means over the sets of one ``kind``, and on how many of them ours is near the best."""
    problems = _problems(results, kind)
    if not problems:
        return NO_ROWS
    means = _means(problems)
    body = [[method, *(_shown(name, value) for name, value in row.items())] for method, row in means.items()]
    gaps = _gaps(problems, OURS)
    known = _gaps_known(problems, OURS)
    could = "which nobody knows beforehand"
    if known:
        could += f", and on {_near(known)} below that of the method that was best on the other seeds, which "
        could += f"one could have known ({_lead(known)})"
    worst = max(gaps, key=lambda place: gaps[place])
    below = f"at worst it is {gaps[worst]:.1f} points below ({_short(worst[0])}, {worst[1]})"
    near, other = max((_near(_gaps(problems, way)), way) for way in means if not way.startswith(OURS))
    names = dict.fromkeys(_short(data) for data, _ in problems)
    seeds = len({seed for found in problems.values() for seed in found})
    rows = [row for found in problems.values() for one in found.values() for row in one.values()]
    return (
        f"{unbroken(markdown_table(['method', *COLUMNS.values()], body, 'lr'))}\n\n"
        f"{len(names)} sets ({', '.join(names)}), {len(problems)} with their kinds of wrong labels, "
        f"{seeds} seed(s) each. **On {_near(gaps)} of {len(gaps)} the score is at most one point below that "
        f"of the best other method there**, {could}; "
        f"{below if gaps[worst] > 0 else 'it is below nowhere'}. Of the others {other} is so most "
        f"often: on {near}. On {', '.join(sorted({row['hardware'] for row in rows}))}."
    )


def brief(results: Path) -> str:
    """Photographs, tables and texts, a line a measure: ours beside the best of cleanlab and scikit-learn."""
    photographs = [
        row
        for row in stored(results / "bench" / "features.jsonl")
        if (row["data"], row["features"]) == ("cifar10n-worse", "lite0")
    ]
    apart = {kind: _problems(results, kind) for kind in BRIEF}
    if not (photographs and all(apart.values())):
        return NO_ROWS
    tuned = [row for row in stored(results / "bench" / "features_tune.jsonl") if row["method"] == "tuned"]
    body = []
    for name, title in (("test_accuracy", "accuracy"), ("average_precision", "ranking")):
        cells = []
        for method in (OURS, "cleanlab", "logistic regression"):
            own = [row[name] for row in photographs if row["method"] == method]
            cells.append(f"{100 * sum(own) / len(own):.1f}")
        about = f"{photographs[0]['rows']:,} photographs, 40 % of their labels wrong"
        body.append(["" if body else about, title, *cells[:2], f"{cells[2]} (logistic)"])
    for name, title in (("test_accuracy", "accuracy"), ("average_precision", "ranking")) if tuned else ():
        mean = f"{100 * sum(row[name] for row in tuned) / len(tuned):.1f}"
        body.append(["the same, with `--tune`" if title == "accuracy" else "", title, mean, "", ""])
    near = []
    for kind, problems in apart.items():
        means = _means(problems)
        others = [way for way in means if not way.startswith(OURS)]
        around = [way for way in others if way.startswith(CLEANLAB)]
        groups = (around, [way for way in others if way not in around])
        by_score = [max(group, key=lambda way: means[way]["score"]) for group in groups]
        about = f"{len({data for data, _ in problems})} {BRIEF[kind]}"
        for name in ("score", "ranking", "time_s"):
            best = [
                way if name == "time_s" else max(group, key=lambda way: means[way][name])
                for way, group in zip(by_score, groups, strict=True)
            ]
            cells = [f"{_shown(name, means[way][name])} ({way.removeprefix(CLEANLAB)})" for way in best]
            first = about if name == "score" else ""
            body.append([first, COLUMNS[name], _shown(name, means[OURS][name]), *cells])
        gaps = _gaps(problems, OURS)
        worst = max(gaps.values())
        what = BRIEF[kind].removeprefix("sets of ")
        near.append(f"{_near(gaps)} of {len(gaps)} for {what} (at worst {worst:.1f} points below)")
    head = ["", "", "tolerant", "cleanlab around its best model", "best model of scikit-learn alone"]
    return (
        f"{unbroken(markdown_table(head, body, 'llr'))}\n\n"
        "The score is at most a point below that of the best other method of each set of labels, which "
        f"nobody knows beforehand, on {', '.join(near[:-1])} and {near[-1]}."
    )


def _problems(results: Path, kind: str) -> dict[tuple[str, str], Problem]:
    """The rows of a kind by data and noise, then by seed and method."""
    found: dict[tuple[str, str], Problem] = {}
    rows = stored(results / "bench" / FILES[kind])
    for row in sorted(rows, key=lambda row: row["data"]):  # they lie in the order in which they were done
        place = found.setdefault((row["data"], row["noise"]), {})
        row["score"] = (row["accuracy"] + row["balanced_accuracy"]) / 2
        place.setdefault(row["seed"], {})[row["method"]] = row
    if kind in ("tables", "texts"):  # in one file; nobody boosts texts
        boosted = {key: any("boosting" in one for one in seeds.values()) for key, seeds in found.items()}
        found = {key: seeds for key, seeds in found.items() if boosted[key] == (kind == "tables")}
    return found


def _means(problems: dict[tuple[str, str], Problem]) -> dict[str, dict[str, float]]:
    """By method, ours first, then each other and cleanlab around it: the mean of every column."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for seeds in problems.values():
        for methods in seeds.values():
            for method, row in methods.items():
                rows.setdefault(method, []).append(row)
    order = sorted(rows, key=lambda way: (not way.startswith(OURS), way.removeprefix(CLEANLAB), way))
    return {
        way: {name: sum(row[name] for row in rows[way]) / len(rows[way]) for name in COLUMNS} for way in order
    }


def _gaps(problems: dict[tuple[str, str], Problem], own: str) -> dict[tuple[str, str], float]:
    """By data and noise: how many points of mean score ``own`` is behind the best method of others."""
    gaps = {}
    for place, seeds in problems.items():
        means = {way: row["score"] for way, row in _means({place: seeds}).items()}
        gaps[place] = 100 * (
            max(mean for way, mean in means.items() if not way.startswith(OURS)) - means[own]
        )
    return gaps


def _gaps_known(problems: dict[tuple[str, str], Problem], own: str) -> dict[tuple[str, str], float]:
    """The same behind the method that was best on the other seeds than the measured one; of one seed none."""
    gaps = {}
    for place, seeds in problems.items():
        found = []
        for seed, methods in seeds.items():
            means = _means({place: {other: row for other, row in seeds.items() if other != seed}})
            others = [way for way in means if not way.startswith(OURS) and way in methods]
            if others:
                best = max(others, key=lambda way: means[way]["score"])
                found.append(100 * (methods[best]["score"] - methods[own]["score"]))
        if found:
            gaps[place] = sum(found) / len(found)
    return gaps


def _lead(gaps: dict[tuple[str, str], float]) -> str:
    mean = sum(gaps.values()) / len(gaps)
    return f"in the mean ours is {abs(mean):.1f} points {'below' if mean > 0 else 'above'} it"


def _near(gaps: dict[tuple[str, str], float]) -> int:
    return sum(gap <= 1 for gap in gaps.values())


def _shown(name: str, value: float) -> str:
    return f"{value if name == 'time_s' else 100 * value:.1f}"


def _short(name: str) -> str:
    """Of a set, without what only tells its file from others."""
    return name.removeprefix("text_").removesuffix("_weak")
