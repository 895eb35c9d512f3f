"""A protocol's name, followed by what was changed in it: "gce2018-table1 epochs=2,lr=0.1"."""

from __future__ import annotations


def with_changes(protocol: str, changes: str) -> str:
    """The name that rows of a changed protocol have, so that they never mix with others."""
    return f"{protocol} {changes}"


def name_of(protocol: str) -> str:
    """The name alone.

    >>> name_of("digits epochs=3")
    'digits'
    """
    return protocol.partition(" ")[0]


def changes_of(protocol: str) -> str:
    """What was changed, or nothing.

    >>> changes_of("digits epochs=3"), changes_of("digits")
    ('epochs=3', '')
    """
    return protocol.partition(" ")[2]
