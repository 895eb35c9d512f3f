"""What a stored spec is called: its method, its protocol, and what was changed in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def method_name(spec: Mapping[str, Any]) -> str:
    """The tables' name for what a stored spec did.

    The paper trains its truncated loss as L_q on the kept rows (algorithm 1); the truncated
    loss itself, without pruning, is another method.

    >>> method_name({"loss": "lq", "transition": "none", "prune": {"k": 0.5}})
    'truncated-lq'
    >>> method_name({"loss": "cce", "transition": "estimated", "prune": None})
    'forward-estimated'
    >>> method_name({"loss": "truncated-lq", "transition": "none", "prune": None})
    'truncated-lq-direct'
    >>> method_name({"rounds": [{"loss": "lq"}, {"loss": "cce"}], "loss": "cce", "transition": "none"})
    'rounds'
    """
    rounds = spec.get("rounds", [])
    if len(rounds) > 1:
        return "rounds"
    name: str = spec["loss"]
    if rounds:
        name, spec = rounds[0]["loss"], {**spec, "prune": rounds[0]["prune"]}
    if spec["prune"]:
        name = "truncated-lq" if name == "lq" else f"{name}+pruning"
    elif name == "truncated-lq":
        name = "truncated-lq-direct"
    if spec["transition"] != "none":
        forward = f"forward-{spec['transition']}"
        name = forward if name == "cce" else f"{name}+{forward}"
    return name


def protocol_name(protocol: str) -> str:
    """The name alone. Rows of a changed protocol name the changes, too, so that they never mix with others.

    >>> protocol_name("digits epochs=3")
    'digits'
    """
    return protocol.partition(" ")[0]


def protocol_changes(protocol: str) -> str:
    """What was changed, or nothing.

    >>> protocol_changes("digits epochs=3"), protocol_changes("digits")
    ('epochs=3', '')
    """
    return protocol.partition(" ")[2]


def changed_protocol(name: str, protocol: str) -> str:
    """The protocol ``name`` with the changes that another one has.

    >>> changed_protocol("digits", "custom epochs=3"), changed_protocol("digits", "custom")
    ('digits epochs=3', 'digits')
    """
    return " ".join(filter(None, (name, protocol_changes(protocol))))
