"""The README and the docs: code runs, commands exist, links lead somewhere, tables are those of the rows."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

from tolerant import __version__ as tolerant_version
from tolerant.cli import make_app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")


def name(page: Any) -> str:
    return str(page.relative_to(ROOT)) if isinstance(page, Path) else str(page)


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text())], ids=name)
def test_code_blocks_run(page, tmp_path, monkeypatch):
    from tolerant.data import CARDS
    from tolerant.losses import REGISTRY

    monkeypatch.chdir(tmp_path)
    before = [(known, dict(known)) for known in (CARDS, REGISTRY)]
    names: dict[str, object] = {"__name__": "__main__"}
    try:
        for block in BLOCK.findall(page.read_text()):
            exec(compile(block, str(page), "exec"), names)
    finally:
        for known, entries in before:  # what a page adds is gone after it
            known.clear()
            known.update(entries)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_to_files_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_table_has_a_head(page):
    """A line of dashes without one above it is shown as it stands, and so are the rows below."""
    lines = ["", *FENCE.sub("", page.read_text()).splitlines()]
    for before, head, dashes in zip(lines, lines[1:], lines[2:], strict=False):
        if re.fullmatch(r"\|[\s:|-]+\|", dashes):
            assert head.startswith("|"), dashes
            assert head.count("|") == dashes.count("|"), head
            assert not before or before.startswith("<!--"), f"{before} would belong to the table"


def commands(start: str) -> list[tuple[str, str]]:
    """(page, command) of every command in a code block or between backticks that starts so."""
    found = []
    for page in PAGES:
        text = page.read_text()
        fences = [fence for fence in FENCE.findall(text) if not fence.startswith((">>>", "import", "from"))]
        indented = re.findall(r"^    (\S.*)$", text, re.MULTILINE)
        lines = [one for fence in fences for one in fence.splitlines()]
        for line in (*lines, *indented, *INLINE.findall(FENCE.sub("", text))):
            command = line.partition("  #")[0].strip()
            if command.startswith(start) and "..." not in command and "…" not in command:
                found.append((name(page), command))
    return sorted(set(found))


@pytest.fixture(scope="module")
def app() -> Any:
    from typer.main import get_command

    return get_command(make_app())


UNDER_TORCHRUN = [(p, c.partition("-m ")[2]) for p, c in commands("torchrun ") if "-m tolerant" in c]


@pytest.mark.parametrize(("page", "command"), [*commands("tolerant "), *UNDER_TORCHRUN])
def test_commands_are_understood(app, page, command):
    """Parsed as the shell would, options and values checked, nothing run."""
    _, sub, *arguments = shlex.split(command)
    assert sub in app.commands, command
    if arguments:  # a command named alone may need arguments
        app.commands[sub].make_context(sub, arguments)


def test_the_parser_refuses_what_does_not_exist(app):
    """So that the test above can fail."""
    for arguments in (["pictures", "--lable", "x"], ["pictures", "--epochs", "many"]):
        with pytest.raises(Exception, match=r"No such option|integer"):
            app.commands["train"].make_context("train", arguments)


class Parsed(Exception):
    """Instead of the benchmark."""


SCRIPTS = [(page, command) for page, command in commands("python ") if command.split()[1].endswith(".py")]


@pytest.mark.parametrize(("page", "command"), SCRIPTS)
def test_scripts_exist_with_their_options(page, command, monkeypatch):
    path, *words = shlex.split(command)[1:]
    assert (ROOT / path).exists()
    if not words:
        return
    monkeypatch.syspath_prepend((ROOT / path).parent)
    parse = ArgumentParser.parse_args

    def parse_only(parser: ArgumentParser, words: list[str]) -> None:
        parse(parser, words)
        raise Parsed

    monkeypatch.setattr(ArgumentParser, "parse_args", parse_only)
    with pytest.raises(Parsed):
        importlib.import_module(Path(path).stem).main(words)


@pytest.mark.parametrize(("page", "command"), commands("make "))
def test_make_targets_exist(page, command):
    assert re.search(rf"^{command.split()[1]}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command


def test_every_loss_is_in_the_guide_with_its_defaults():
    from tolerant.losses import REGISTRY

    lines = (ROOT / "docs" / "losses.md").read_text().splitlines()
    for name, loss in REGISTRY.items():
        numbers = ", ".join(f"{key}={value:g}" for key, value in loss.defaults.items())
        row = f"| `{name}` | `{loss.__name__}({numbers})` |"
        assert sum(line.startswith(row) for line in lines) == 1, row


def script(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(path).stem, ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pictures_can_be_drawn_again(tmp_path):
    drawn = {path.name for path in script("docs/make_pictures.py").draw(tmp_path)}
    images = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert drawn == images - {"demo.png"}  # which `make demo` draws
    pages = "".join(page.read_text() for page in PAGES)
    assert all(f"images/{image})" in pages for image in images)


@pytest.mark.parametrize("page", [page for page in PAGES if "<!-- report:" in page.read_text()], ids=name)
def test_tables_are_those_of_the_rows(page, tmp_path, monkeypatch):
    """On failure: make tables."""
    copy = tmp_path / page.name
    shutil.copy(page, copy)
    words = ["report", "--docs", str(copy), "--results", str(ROOT / "results")]
    assert CliRunner().invoke(make_app(), words).exit_code == 0
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    importlib.import_module("tables").main([str(copy), "--results", str(ROOT / "results")])
    assert copy.read_text() == page.read_text(), "run: make tables"


def test_the_scaling_page_reckons_with_the_measured_times():
    last = json.loads((ROOT / "results/bench/prune.jsonl").read_text().splitlines()[-1])
    in_order, at_random = round(last["ns_per_row"]), round(last["shuffled_ns_per_row"])
    text = (ROOT / "docs" / "scaling.md").read_text()
    assert f"{in_order} ns in order to {at_random} ns at random" in text
    assert f"**{in_order} to {at_random} s**" in text  # 10^9 rows
    assert last["state_bytes_per_row"] < 16


@pytest.mark.parametrize("path", ["docs/docstrings.py", "docs/notebooks.py", "docs/options.py"])
def test_what_the_site_does_to_texts(path):
    pytest.importorskip("griffe", reason="needs the docs extra")
    found = doctest.testmod(script(path))
    assert (found.attempted > 0, found.failed) == (True, 0)


def test_the_site_builds_strictly_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the docs extra")
    # Not --quiet, under which mkdocs counts no warning, so that nothing is strict.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > len(list((ROOT / "docs").rglob("*.md"))) - 1
    for page in pages:
        html = page.read_text()
        assert not re.search(r"<(?:script|img|iframe)[^>]*src=\"?https?:", html), page.name
        assert not re.search(r"<link[^>]*href=\"?https?:", html), page.name
        assert ":math:" not in html, page.name
        assert page.name == "404.html" or f"tolerant {tolerant_version}" in html, page.name
        assert "```" not in html, page.name  # an example that became something else, such as a table
        assert "|---|" not in html, page.name  # a table without its first row, or without a line before it
        if page.parent.name == "api":
            assert not re.search(r"<em>(?!required<)", html), page.name  # the stars of two f*
            assert "<details" not in html, page.name  # "inputs:" outside of "Args:" folds away
            assert not re.search(r'\n<math[^>]*"inline"', html), page.name  # a paragraph of its own
