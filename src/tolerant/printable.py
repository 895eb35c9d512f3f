"""Text from data on its way to a terminal: what would steer the terminal is shown instead of obeyed."""

from __future__ import annotations

import re

# Controls (ESC begins colours, titles and more), and what turns the direction of a line or breaks it.
_STEERING = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_TEXT, _IN_LINE = re.compile(f"[{_STEERING}]"), re.compile(f"[\t\n{_STEERING}]")


def printable(text: object, *, one_line: bool = False) -> str:
    r"""The text with its control characters as escapes; line breaks and tabs stay, unless it is ``one_line``.

    >>> printable("cat\x1b]0;title\x07\n"), printable("two\nlines", one_line=True)
    ('cat\\x1b]0;title\\x07\n', 'two\\nlines')
    """
    found = _IN_LINE if one_line else _IN_TEXT
    return found.sub(lambda match: match[0].encode("unicode_escape").decode(), str(text))
