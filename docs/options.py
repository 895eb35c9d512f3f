"""What the site does with every page: its version at the foot, and options of commands that stay whole.

Browsers would break a line inside `--docs`, after its first hyphen.
"""

from __future__ import annotations

import re
from typing import Any

from tolerant import __version__

_INLINE = re.compile(r"<code>([^<\n]*)</code>")
_OPTION = re.compile(r"(?<![\w-])-{1,2}[a-z][\w-]*")


def on_config(config: Any, **_: Any) -> Any:
    """Called by mkdocs at the start."""
    config.copyright = f"tolerant {__version__}"
    return config


def on_page_content(html: str, **_: Any) -> str:
    """Called by mkdocs with each page.

    >>> on_page_content("<code>tolerant report --docs x-y.md</code>")
    '<code>tolerant report <span class="option">--docs</span> x-y.md</code>'
    """
    return _INLINE.sub(lambda code: _OPTION.sub(r'<span class="option">\g<0></span>', code[0]), html)
