"""Extractors by name: which there are, which are installed, and the one a name means."""

from __future__ import annotations

import functools

import torch

from tolerant import plugins
from tolerant.data.features.bundled import BUNDLED, Card, bundled
from tolerant.data.features.extractor import Extractor, Identity, Kind
from tolerant.data.features.hubs import HUBS, Hub
from tolerant.data.features.own_file import load_own_file
from tolerant.data.features.picture_networks import Body
from tolerant.hints import did_you_mean

_WORDS: dict[Kind, str] = {"image": "pictures", "text": "texts"}


def default_extractor(kind: Kind) -> str | None:
    """The first bundled extractor for such rows that is installed."""
    return next((card.name for card in BUNDLED.values() if card.kind == kind and not card.missing()), None)


def load_extractor(name: str, kind: Kind, device: torch.device | str = "cpu") -> Extractor:
    """The extractor with this name, ready for rows of this kind.

    ``name`` is that of a bundled one, or SOURCE:MODEL: timm, hf, st and open_clip by their own names of
    models, torch:PATH for an exported program of one's own. Only that of a source may fetch something.
    """
    device = torch.device(device)
    source, _, model = name.partition(":")
    if source == "torch" and model:
        return load_own_file(name, model, kind, device)
    found = _find(name, kind)
    if isinstance(found, Hub):
        return found.load(name, model, kind, device)
    return _load_card(found, device)


def load_body(name: str) -> Body:
    """The network for pictures with this name, to be trained further."""
    found = None if name.startswith("torch:") else _find(name, "image")
    if found is None or found.body is None:
        known = [each.name for each in BUNDLED.values() if each.body]
        known += [f"{hub.name}:MODEL" for hub in HUBS.values() if hub.body]
        raise ValueError(
            f"{name} gives features and cannot be trained further; these can: {', '.join(known)}"
        )
    return found.body(name, name.partition(":")[2]) if isinstance(found, Hub) else found.body(found)


def check_name(name: str) -> None:
    """An error for a name that means nothing or needs what is not installed, whatever the rows are."""
    source, _, model = name.partition(":")
    if not (source == "torch" and model):
        _check_installed(name, _meant(name, tuple(_WORDS)))


def _find(name: str, kind: Kind) -> Card | Hub:
    """What the name means, if it is installed and for rows of this kind."""
    found = _meant(name, (kind,))
    kinds = found.kinds if isinstance(found, Hub) else (found.kind,)
    if kind not in kinds:
        others = [card.name for card in BUNDLED.values() if card.kind == kind]
        raise ValueError(
            f"{name} is for {_WORDS[kinds[0]]}, and these rows are {_WORDS[kind]}; "
            f"for them: {', '.join(others)}"
        )
    _check_installed(name, found)
    return found


def _meant(name: str, kinds: tuple[Kind, ...]) -> Card | Hub:
    """What the name means; ``kinds`` of rows: what an error says there is for them."""
    source, colon, model = name.partition(":")
    found = HUBS.get(source) if colon and model else bundled(name)
    if found is None and not colon:
        found = plugins.find("tolerant.extractors", name, Card)
    if found is None:
        raise ValueError(f"features must name an extractor; got {name!r}. {_known(name, kinds)}")
    return found


def _check_installed(name: str, found: Card | Hub) -> None:
    if missing := found.missing():
        raise ModuleNotFoundError(f"{name} needs {', '.join(missing)}: {found.install}", name=missing[0])


@functools.lru_cache(2)  # their weights do not change, and `predict` may be called for few rows at a time
def _load_card(card: Card, device: torch.device) -> Extractor:
    return card.load(card, device)


def load_known(identity: Identity, kind: Kind, device: torch.device | str = "cpu") -> Extractor:
    """The extractor that made the features of a trained model; another one by that name is refused."""
    found = load_extractor(identity.name, kind, device)
    if found.identity.key != identity.key:
        was, now = (
            f"{one.version}, weights {one.weights[:12]}; {one.use}" for one in (identity, found.identity)
        )
        raise ValueError(
            f"the model was trained on features of {identity.name} ({was}); what is installed by that name "
            f"is another ({now}), and gives other numbers. Install the former, or train again."
        )
    return found


def _known(name: str, kinds: tuple[Kind, ...]) -> str:
    """What was probably meant, what is installed, and how to get the others."""
    cards = [card for card in BUNDLED.values() if card.kind in kinds]
    hubs = [hub for hub in HUBS.values() if set(kinds) & set(hub.kinds)]
    own = ["torch:"] if "image" in kinds else []
    names = [*(card.name for card in cards), *(f"{hub.name}:" for hub in hubs), *own]
    examples = [*(hub.example for hub in hubs), *(f"{one}PATH" for one in own)]
    others = "; ".join(f"{card.name} ({card.install})" for card in cards if card.missing())
    parts = [
        "Its model is missing." if name in names else did_you_mean(name, names, cutoff=0.5, most=3),
        *(f"Installed for {_WORDS[kind]}: {_there(cards, kind)}." for kind in kinds),
        f"Others: {others}." if others else "",
        f"Or SOURCE:MODEL, such as {', '.join(examples)}.",
    ]
    return " ".join(part for part in parts if part)


def _there(cards: list[Card], kind: Kind) -> str:
    return ", ".join(card.name for card in cards if card.kind == kind and not card.missing()) or "none"


def list_extractors() -> list[tuple[str, str]]:
    """(name, what it is, and whether it is installed or how to get it) for all of them."""
    lines = []
    for card in BUNDLED.values():
        state = f"missing: {card.install}" if card.missing() else "installed"
        lines.append((card.name, f"{_WORDS[card.kind]}, {card.title}; {state}"))
    for hub in HUBS.values():
        state = f"missing: {hub.install}" if hub.missing() else "installed"
        what = " and ".join(_WORDS[kind] for kind in hub.kinds)
        lines.append((f"{hub.name}:MODEL", f"{what}, such as {hub.example}; {state}"))
    return [*lines, ("torch:PATH", "pictures, a .pt2 file of torch.export.save; part of torch")]
