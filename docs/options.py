"""Options of commands stay whole: browsers would break a line inside `--docs`, after its first hyphen."""

from __future__ import annotations

import re
from typing import Any

_INLINE = re.compile(r"<code>([^<\n]*)</code>")
_OPTION = re.compile(r"(?<![\w-])-{1,2}[a-z][\w-]*")


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with each page.

    >>> on_page_content("<code>tolerant report --docs x-y.md</code>")
    '<code>tolerant report <span class="option">--docs</span> x-y.md</code>'
    """
    return _INLINE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
