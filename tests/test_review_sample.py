"""Rows drawn at random for a person to label, and labels that look as if rules had made them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from tolerant import find_suspects
from tolerant.data import NoisyDataset
from tolerant.own_data.rules import made_by_rules
from tolerant.review import write_page
from tolerant.review.charts import rate_in_words
from tolerant.review.sample import draw_sample
from tolerant.suspects import RateInterval, Suspects


def rows(num_rows: int = 400) -> tuple[NoisyDataset, Suspects, np.ndarray]:
    given = np.arange(num_rows) % 2
    probs = np.where(np.eye(2)[given] > 0, 0.9, 0.1)
    reviewed = np.arange(num_rows) < num_rows // 4
    texts = np.array([f"text {row}" for row in range(num_rows)], object)
    data = NoisyDataset(texts, given, None, ("a", "b"), kind="text")
    return data, find_suspects(given, probs, reviewed=reviewed, class_names=("a", "b")), reviewed


def test_a_sample_has_other_rows_than_the_suspects_each_as_likely() -> None:
    data, suspects, reviewed = rows()
    assert len(suspects) == 0
    counts = np.zeros(400)
    for seed in range(300):
        drawn = draw_sample(suspects, data, reviewed, 100, seed=seed)
        assert len(np.unique(drawn.index)) == 100
        counts[drawn.index] += 1
    assert counts[reviewed].sum() == 0
    assert abs(counts[~reviewed] - 100).max() < 45  # 5.5 deviations of a third of 300 draws
    assert (drawn.suggested_labels == drawn.given_labels).all()
    assert (drawn.given_labels == data.given_labels[drawn.index]).all()


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    data, suspects, reviewed = rows()
    small, large = (draw_sample(suspects, data, reviewed, count, seed=3) for count in (50, 80))
    assert large.index[:50].tolist() == small.index.tolist()
    assert not np.array_equal(np.sort(large.index), large.index)
    assert len(draw_sample(suspects, data, reviewed, 1000, seed=3)) == 300


def test_what_cannot_be_drawn_is_refused() -> None:
    data, suspects, reviewed = rows()
    with pytest.raises(ValueError, match="count must be a whole number of at least 1; got 0"):
        draw_sample(suspects, data, reviewed, 0, seed=0)
    with pytest.raises(ValueError, match="a person has decided every label"):
        draw_sample(suspects, data, np.ones(400, bool), 5, seed=0)


def test_the_page_of_a_sample_knows_of_how_many_of_the_rows_it_speaks(tmp_path: Path) -> None:
    """The reviewed quarter is right, so what it finds is a share of the other three."""
    data, suspects, reviewed = rows()
    drawn = draw_sample(suspects, data, reviewed, 20, seed=0)
    for sample, said in ((True, '"sampleOf":0.75'), (False, '"sampleOf":null')):
        write_page(tmp_path / "page.html", drawn, data, sample=sample)
        assert said in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize(
    ("rate", "headline"),
    [
        (RateInterval(0.2, 0.16, 0.25), "20 %"),
        (RateInterval(0.2, 0.02, 0.25), "2.0 % to 25 %"),
        (RateInterval(0.09, 0.01, 0.31, at_least=True), "at least 9.0 %"),
    ],
)
def test_a_range_and_a_lower_bound_are_called_so_on_the_page(
    rate: RateInterval, headline: str, tmp_path: Path
) -> None:
    assert rate_in_words(rate)[0] == headline
    data, suspects, _ = rows()
    object.__setattr__(suspects, "noise_rate", rate)
    write_page(tmp_path / "page.html", suspects, data)
    page = (tmp_path / "page.html").read_text()
    assert f"<strong>{headline}</strong>" in page
    assert ("--sample 100</code>" in page) == (headline != "20 %")


def made_up(num_rows: int, *, by_rule: bool) -> tuple[np.ndarray, np.ndarray]:
    """Texts of two themes; labels by a keyword, which half of the texts of a theme lack, or by the theme."""
    rng = np.random.default_rng(0)
    themes = [[f"{name}{number}" for number in range(30)] for name in ("sport", "money")]
    true = rng.integers(2, size=num_rows)
    has_word = rng.random(num_rows) < 0.5
    texts = [
        " ".join([*rng.choice(themes[theme], 3), *(["ball"] if word and theme == 0 else [])])
        for theme, word in zip(true, has_word, strict=True)
    ]
    given = np.where(has_word & (true == 0), 0, 1) if by_rule else true
    return np.array(texts, object), given


def test_labels_that_one_word_tells_look_like_a_rule() -> None:
    assert made_by_rules(*made_up(600, by_rule=True))
    assert not made_by_rules(*made_up(600, by_rule=False))
    assert not made_by_rules(*made_up(100, by_rule=True))  # too few to say
    assert not made_by_rules(
        np.array(["hello"] * 400, object), (np.arange(400) % 100 == 0).astype(int)
    )  # one large class
    assert not made_by_rules(np.array([f"x{row}" for row in range(400)], object), np.arange(400) % 2)


@pytest.mark.skipif("TOLERANT_DATA" not in os.environ, reason="needs the published data sets")
def test_rules_of_trec_show_and_its_true_labels_do_not() -> None:
    path = Path(os.environ["TOLERANT_DATA"]) / "text" / "trec.json"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    train = json.loads(path.read_text())["train"]
    texts, true = np.array(train["text"], object), np.array(train["y_clean"])
    voted = np.flatnonzero([bool(votes) for votes in train["votes"]])
    given = np.array([np.bincount([label for _, label in train["votes"][row]]).argmax() for row in voted])
    assert made_by_rules(texts[voted], given)
    assert not made_by_rules(texts, true)
