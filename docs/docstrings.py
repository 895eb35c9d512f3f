"""Docstrings as Python programmers write them, made into the Markdown that the site's API pages show.

Formulas become MathML, which browsers draw themselves: no script, nothing to fetch. Examples become code
blocks. Classes whose parameters are set at run time (the losses) show those.
"""

from __future__ import annotations

import inspect
import re
from typing import Any

import griffe
from latex2mathml.converter import convert

from tolerant import losses
from tolerant.losses.module import RobustLoss

_ROLE = re.compile(r":(?:func|class|meth|mod):`([^`]+)`")
_INLINE = re.compile(r":math:`([^`]+)`")
_DISPLAY = re.compile(r"^\.\. math::(.*(?:\n[ ]+\S.*)*)", re.MULTILINE)
_EXAMPLE = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)
_STAR = re.compile(rf"({_DISPLAY.pattern}|```[^`]*```|``[^`]*``|`[^`]*`)|\*", re.MULTILINE)


def to_markdown(text: str) -> str:
    r"""Roles, formulas and examples of a docstring, in Markdown.

    >>> to_markdown("See :func:`tolerant.theory.lq`.")
    'See `lq`.'
    >>> to_markdown(":math:`q`")[:5]
    '<math'
    >>> to_markdown("R(f*) is at most R(f*), not `2 * 3 * 4`.")  # stars are no emphasis
    'R(f\\*) is at most R(f\\*), not `2 * 3 * 4`.'
    >>> to_markdown("the width\n:math:`q` of it")[:15]  # at the start of a line it would be a paragraph
    'the width <math'
    """
    text = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}\n```", text)
    text = _STAR.sub(lambda found: found[1] or r"\*", text)
    text = re.sub(r"(?<=\S)\n[ ]*(?=:math:`)", " ", text)
    text = _DISPLAY.sub(lambda found: _math(found[1], "block"), text)
    text = _INLINE.sub(lambda found: _math(found[1], "inline"), text)
    text = _ROLE.sub(lambda found: f"`{found[1].rsplit('.')[-1]}`", text)
    return re.sub(r"::$", ":", text, flags=re.MULTILINE)


def _math(latex: str, display: str) -> str:
    return convert(" ".join(latex.split()), display=display)


class Docstrings(griffe.Extension):
    """Applied to everything the API pages show."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        loss = getattr(losses, cls.name, object)
        if (
            cls.path.startswith("tolerant.losses.")
            and issubclass(loss, RobustLoss)
            and loss is not RobustLoss
        ):
            parameters = [
                griffe.Parameter(p.name, kind=griffe.ParameterKind.keyword_only, default=repr(p.default))
                for p in inspect.signature(loss).parameters.values()
            ]
            own = griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)
            init = griffe.Function("__init__", parameters=griffe.Parameters(own, *parameters))
            cls.set_member("__init__", init)
