"""The review page in a real Chromium: open, filter, decide, undo, come back, export, read back."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_predict
from typer.testing import CliRunner

from tolerant import find_suspects
from tolerant.cli import make_app
from tolerant.csv_cells import csv_text
from tolerant.data import NoisyDataset
from tolerant.data.digest import content_digests
from tolerant.noise import corrupt, symmetric
from tolerant.own_data.run_folder.save import CURVES
from tolerant.review import apply_corrections, read_corrections, write_page
from tolerant.review.sample import draw_sample
from tolerant.suspects.evidence import Evidence

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.ui import Select  # noqa: E402

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--hide-scrollbars",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


class Browser:
    """Chromium with a fresh profile, and short names for what the tests do."""

    def __init__(self, folder: Path) -> None:
        self.downloads = folder / "downloads"
        self.downloads.mkdir()
        options = webdriver.ChromeOptions()
        options.binary_location = str(shutil.which("chromium"))
        for flag in [*FLAGS, f"--user-data-dir={folder / 'profile'}", "--window-size=1280,900"]:
            options.add_argument(flag)
        options.add_experimental_option("prefs", {"download.default_directory": str(self.downloads)})
        service = webdriver.ChromeService(shutil.which("chromedriver"))
        self.driver = webdriver.Chrome(options=options, service=service)

    def command(self, name: str, **parameters: Any) -> Any:
        return self.driver.execute_cdp_cmd(name, parameters)

    def open(self, page: Path) -> None:
        self.driver.get(page.as_uri())

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector: str) -> list[str]:
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)"
        return self.run(script, selector)

    def keys(self, *keys: str) -> None:
        self.driver.switch_to.active_element.send_keys(*keys)

    @property
    def status(self) -> str:
        return self.find("#status").text

    @property
    def current(self) -> int:
        return int(self.find(".card.current").get_attribute("data-row"))

    def stored(self) -> list[list[int]]:
        text = self.run("return Object.entries(localStorage).find(([k]) => k.includes(':'))?.[1]")
        return json.loads(text)["labels"] if text else []

    def export(self, button: str, name: str) -> Path:
        path = self.downloads / name
        path.unlink(missing_ok=True)
        self.find(button).click()
        deadline = time.monotonic() + 60
        # Chromium holds the name with an empty file, and renames the whole one to it.
        while not (path.exists() and path.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        return path

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if shutil.which("chromium") is None or shutil.which("chromedriver") is None:
        pytest.skip("needs the Debian packages chromium and chromium-driver")
    browser = Browser(tmp_path_factory.mktemp("browser"))
    yield browser
    browser.driver.quit()


@pytest.fixture
def browser(started: Browser) -> Iterator[Browser]:
    yield started
    assert started.errors() == []
    started.command("Emulation.clearDeviceMetricsOverride")
    started.command("Emulation.setEmulatedMedia", features=[])
    started.command("Emulation.setScriptExecutionDisabled", value=False)
    started.driver.get("about:blank")
    # Not by the page: what a page clears may reach the next one after that has stored its first decision.
    started.command("Storage.clearDataForOrigin", origin="file://", storageTypes="local_storage")


@pytest.fixture(scope="module")
def digits() -> NoisyDataset:
    source = load_digits()
    given = corrupt(source.target, symmetric(10, 0.4), seed=0).given_labels
    return NoisyDataset(
        inputs=(source.images * 15.9).astype(np.uint8)[..., None],
        given_labels=given,
        true_labels=source.target,
        class_names=NAMES,
        ids=np.array([f"digit_{row:04d}.png" for row in range(len(given))]),
        kind="image",
    )


@pytest.fixture(scope="module")
def review(digits: NoisyDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of digits with 40 % of the labels wrong, as `tolerant train` writes it."""
    model = LogisticRegression(C=0.01, tol=1e-2, max_iter=1000)
    inputs = load_digits().data / 4
    probs = cross_val_predict(model, inputs, digits.given_labels, cv=5, method="predict_proba")
    kept = probs[np.arange(len(digits)), digits.given_labels] > 0.1
    suspects = find_suspects(
        digits.given_labels,
        probs,
        ids=digits.ids,
        class_names=digits.class_names,
        kept=kept,
        pruned_at=np.where(kept, -1, 40),
    )
    path = tmp_path_factory.mktemp("page") / "report.html"
    history = {"train_loss": list(np.geomspace(2, 0.5, 30)), "kept_share": [1.0] * 20 + [0.6] * 10}
    write_page(path, suspects, digits, title="Digits", history=history)
    return path


@pytest.fixture
def small_page(tmp_path: Path) -> Callable[..., Path]:
    """A page whose first `wrong` rows are believed to be of the next class."""

    def write(names: tuple[str, ...], ids: Any = None, wrong: int = 12, num_rows: int = 60) -> Path:
        given = np.arange(num_rows) % len(names)
        believed = given.copy()
        believed[:wrong] = (given[:wrong] + 1) % len(names)
        sure = np.linspace(0.904, 0.896, num_rows)  # the first row first: of equals, rounding would decide
        probs = np.repeat((1 - sure)[:, None] / (len(names) - 1), len(names), axis=1)
        probs[np.arange(num_rows), believed] = sure
        texts = np.array([f"text {row}" for row in range(num_rows)], dtype=object)
        rows = NoisyDataset(texts, given, None, names, ids=ids, kind="text")
        suspects = find_suspects(given, probs, ids=rows.ids, class_names=names)
        write_page(tmp_path / "small.html", suspects, rows)
        return tmp_path / "small.html"

    return write


def test_a_long_cell_of_a_table_can_be_scrolled_to_by_key(browser: Browser, tmp_path: Path) -> None:
    cells = pd.DataFrame({"x": ["1"] * 40, "comment": ["short", "long " * 90] * 20})
    given = np.arange(40) % 2
    probs = np.where(np.eye(2)[given] > 0, 0.9, 0.1)
    probs[:6] = probs[:6, ::-1]
    rows = NoisyDataset(np.zeros((40, 1), np.float32), given, None, ("a", "b"), cells=cells)
    write_page(tmp_path / "cells.html", find_suspects(given, probs, class_names=("a", "b")), rows)
    browser.open(tmp_path / "cells.html")
    found = browser.run(
        "return [...document.querySelectorAll('.card .values')]"
        ".map((box) => [box.scrollHeight > box.clientHeight, box.tabIndex === 0])"
    )
    assert sorted(map(tuple, found)) == [(False, False)] * 3 + [(True, True)] * 3


def test_a_review_from_start_to_corrected_labels(
    browser: Browser, review: Path, digits: NoisyDataset
) -> None:
    browser.open(review)
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    total = len(data["ids"])
    assert total > 500
    assert browser.status == f"0 of {total} decided."
    assert not browser.find("#undo").is_enabled()

    # Filter: one given label, then one pair.
    Select(browser.find("#filter-given")).select_by_value("3")
    assert set(browser.texts(".card .beliefs dd.name")[::2]) == {"three"}
    browser.find("#pairs button").click()
    pair = browser.run("return {...document.querySelector('#pairs button').dataset}")
    rows = [int(row) for row in browser.run(
        "return [...document.querySelectorAll('.card')].map((c) => c.dataset.row)"
    )]  # fmt: skip
    assert rows
    assert all(data["given"][row] == int(pair["given"]) for row in rows)
    assert all(data["suggested"][row] == int(pair["suggested"]) for row in rows)
    browser.find("#pairs button").click()  # again: all rows
    assert browser.find("#page-text").text == f"1 to 48 of {total}"

    # Decide with keys; each goes on to the next.
    browser.find("#review").send_keys("a")
    browser.keys("k")
    browser.keys("c")
    other = next(
        name for label, name in enumerate(digits.class_names)
        if label not in (data["given"][2], data["suggested"][2])
    )  # fmt: skip
    browser.find("#choose-search").send_keys(other.upper(), Keys.ENTER)
    assert browser.current == 3
    browser.keys("a")
    assert browser.status.startswith(f"4 of {total} decided.")
    assert browser.texts(".verdict")[:4] == [
        f"✓ Now {digits.class_names[data['suggested'][0]]}",
        f"= Kept {digits.class_names[data['given'][1]]}",
        f"✎ Now {other}",
        f"✓ Now {digits.class_names[data['suggested'][3]]}",
    ]

    # Undo the last, and step.
    browser.keys("u")
    assert browser.current == 3
    assert browser.status.startswith(f"3 of {total} decided. Undone for {data['ids'][3]}")
    browser.keys(Keys.ARROW_LEFT)
    assert browser.current == 2
    browser.keys("n")
    assert browser.current == 3

    # Come back: decisions are there.
    browser.open(review)
    assert browser.status.startswith(f"3 of {total} decided.")
    Select(browser.find("#filter-status")).select_by_value("done")
    assert browser.find("#page-text").text == "1 to 3 of 3"

    # Export both ways, read back, apply.
    exported = read_corrections(browser.export("#export-csv", "corrections.csv"))
    assert exported == read_corrections(browser.export("#export-json", "corrections.json"))
    assert [(c.id, c.decision) for c in exported] == [
        (data["ids"][0], "accept"),
        (data["ids"][1], "keep"),
        (data["ids"][2], "change"),
    ]
    fixed = apply_corrections(
        digits.given_labels,
        exported,
        ids=digits.ids,
        class_names=digits.class_names,
        row_digests=partial(content_digests, digits),
    )
    assert fixed.reviewed.sum() == 3
    assert fixed.given_labels[data["index"][0]] == data["suggested"][0]
    assert fixed.given_labels[data["index"][2]] == digits.class_names.index(other)


def test_training_on_what_was_reviewed_is_better(
    browser: Browser, digits: NoisyDataset, tmp_path: Path
) -> None:
    """A person who knows the truth goes through the suspects of a run with the keys, and trains again."""
    rows, test = digits.subset(np.arange(600)), digits.subset(np.arange(1000, 1797))
    names = np.array(digits.class_names)
    np.savez(tmp_path / "rows.npz", inputs=rows.inputs, labels=names[rows.given_labels], ids=rows.ids)
    np.savez(tmp_path / "test.npz", inputs=test.inputs)

    def accuracy(run: str, *options: Any) -> float:
        quick = ("--epochs", 30, "--folds", 2)
        for arguments in (
            ("train", tmp_path / "rows.npz", "--out", tmp_path / run, *quick, *options),
            ("predict", tmp_path / run, tmp_path / "test.npz", "--out", tmp_path / "labels.csv"),
        ):
            done = CliRunner().invoke(make_app(), [str(word) for word in arguments])
            assert done.exit_code == 0, done.output
        lines = (tmp_path / "labels.csv").read_text().splitlines()[1:]
        return float(np.mean([line.split(",")[1] for line in lines] == names[test.true_labels]))

    before = accuracy("run")
    browser.open(tmp_path / "run" / "report.html")
    data = browser.run("return JSON.parse(document.getElementById('data').textContent)")
    keys = ""
    for index, given, suggested in zip(data["index"], data["given"], data["suggested"], strict=True):
        keys += {suggested: "a", given: "k"}.get(int(rows.true_labels[index]), "n")
    browser.find("#review").send_keys(keys)
    assert browser.status.startswith(f"{len(keys) - keys.count('n')} of {len(keys)} decided.")
    corrections = browser.export("#export-csv", "corrections.csv")
    after = accuracy("again", "--labels", corrections)
    assert after > before + 0.02
    decided = {correction.id for correction in read_corrections(corrections)}
    listed = (tmp_path / "again" / "suspects.csv").read_text().splitlines()[1:]
    assert not any(line.split(",")[2] in decided for line in listed)


def test_hostile_data_is_text_and_survives_the_export(
    browser: Browser, small_page: Callable[..., Path]
) -> None:
    names = (
        "<script>alert(1)</script>",
        "</script><img src=x onerror=alert(1)>",
        "__proto__",
        "constructor",
        "=HYPERLINK(\"http://x\"), 'q'",
        "two\nlines\u2028",
    )
    ids = ["=1+1", "-5", "-5\n", "'=x", "''", " =2", "\ufeff=3", "\x1c=4", "\t", "a\rb", "__proto__"]
    ids += [f'é"{row};,' for row in range(60 - len(ids))]
    browser.open(small_page(names, ids=np.array(ids, dtype=object)))
    shown = set(browser.texts(".card .beliefs dd.name"))
    assert shown == set(names)
    assert browser.run("return document.querySelectorAll('script, #cards img').length") == 2
    browser.find("#accept-page").click()
    path = browser.export("#export-csv", "corrections.csv")
    corrections = read_corrections(path)
    assert {c.id: (c.given_label, c.new_label) for c in corrections} == {
        ids[row]: (names[row % 6], names[(row + 1) % 6]) for row in range(12)
    }
    # The page and the package quote and guard alike.
    cells = [[c.id, c.given_label, c.decision, c.new_label, c.row_digest] for c in corrections]
    ours = csv_text(("id", "given_label", "decision", "new_label", "row_digest"), cells)
    theirs = path.read_bytes().decode("utf-8-sig")
    assert theirs.split("\r\n")[:-1] == _records(ours)
    assert read_corrections(browser.export("#export-json", "corrections.json")) == corrections


def _records(text: str) -> list[str]:
    """Lines of a CSV, newlines within quotes kept."""
    records, quoted = [""], False
    for character in text:
        quoted ^= character == '"'
        if character == "\n" and not quoted:
            records.append("")
        else:
            records[-1] += character
    return records[:-1]


def test_a_row_of_none_of_the_classes_is_dropped(browser: Browser, small_page: Callable[..., Path]) -> None:
    browser.open(small_page(("a", "b")))
    browser.find("#review").send_keys("d", "a")
    assert browser.texts(".verdict")[:2] == ["✕ Dropped", "✓ Now a"]
    browser.driver.refresh()
    assert browser.texts(".verdict")[:2] == ["✕ Dropped", "✓ Now a"]
    found = read_corrections(browser.export("#export-csv", "corrections.csv"))
    assert found == read_corrections(browser.export("#export-json", "corrections.json"))
    assert [(c.decision, c.new_label) for c in found] == [("drop", None), ("accept", "a")]
    browser.find(".card [data-action=drop]").click()  # again: takes it back
    assert browser.status.startswith("1 of 12 decided.")


def test_rows_are_found_by_what_they_say(browser: Browser, small_page: Callable[..., Path]) -> None:
    browser.open(small_page(("a", "b"), [f"id{row}" for row in range(60)]))
    browser.find("#search").send_keys("TEXT 1")
    assert browser.texts(".card .words") == ["text 1", "text 10", "text 11"]
    browser.find("#search").clear()
    browser.find("#search").send_keys("id7")
    assert browser.texts(".card .words") == ["text 7"]
    assert browser.stored() == []  # letters that are typed decide nothing


@pytest.mark.parametrize(("width", "most"), [(1280, 600), (390, 720)])
def test_the_list_starts_on_the_first_screen(browser: Browser, review: Path, width: int, most: int) -> None:
    browser.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=True
    )
    browser.open(review)
    assert browser.run("return document.querySelector('.card').getBoundingClientRect().top") < most


def test_long_names_of_classes_do_not_push_the_list_down(
    browser: Browser, small_page: Callable[..., Path]
) -> None:
    browser.open(small_page(tuple(f"a class with a long name {letter}" for letter in "abcdefghij"), wrong=40))
    assert len(browser.texts(".pairs button")) > 5
    assert browser.run("return document.querySelector('.card').getBoundingClientRect().top") < 640


def test_facts_leave_no_gap_on_a_phone(browser: Browser, small_page: Callable[..., Path]) -> None:
    """Of rows that none were left out of there are three, and the third, the classes, is not shown there."""
    browser.command(
        "Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True
    )
    browser.open(small_page(("a", "b")))
    right = browser.run(
        "const shown = [...document.querySelectorAll('.facts, .fact')].filter((box) => box.offsetWidth);"
        "return [shown[0], shown.at(-1)].map((box) => Math.round(box.getBoundingClientRect().right))"
    )
    assert right[0] - right[1] <= 1  # the border


def test_all_columns_and_what_speaks_for_the_suggestion(browser: Browser, tmp_path: Path) -> None:
    cells = pd.DataFrame({f"c{number}": ["x"] * 40 for number in range(12)} | {"town": ["Ulm"] * 40})
    given = np.arange(40) % 2
    probs = np.where(np.eye(2)[given] > 0, 0.9, 0.1)
    probs[:6] = probs[:6, ::-1]
    rows = NoisyDataset(np.zeros((40, 1), np.float32), given, None, ("a", "b"), cells=cells)
    suspects = find_suspects(given, probs, class_names=("a", "b"))
    write_page(tmp_path / "wide.html", suspects, rows, reasons=[[("town", "Ulm")], []])
    browser.open(tmp_path / "wide.html")
    assert browser.texts(".because b") == ["town: Ulm"]
    columns = ".card[data-row='0'] .values dt"
    assert browser.texts(columns) == ["town", *(f"c{number}" for number in range(6))]
    browser.find(".card .expand").click()
    assert browser.texts(columns) == ["town", *(f"c{number}" for number in range(12))]
    assert browser.stored() == []


def test_what_neighbours_say_is_shown_and_filtered(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tolerant.review.page._WITH_EXAMPLES", 3)
    given = np.arange(40) % 2
    probs = np.where(np.eye(2)[given] > 0, 0.9, 0.1)
    probs[:6] = probs[:6, ::-1]
    texts = np.array([f"text {row}" for row in range(40)], dtype=object)
    suspects = find_suspects(given, probs, class_names=("a", "b"))
    near = np.tile(np.array([[20, 22, 24]]), (6, 1))
    twin, lonely = np.array([-1, 31, -1, -1, -1, -1]), np.array([False, False, False, True, False, True])
    suspects = replace(suspects, evidence=Evidence(near, near + 1, twin, lonely))
    rows = NoisyDataset(texts, given, None, ("a", "b"), kind="text")
    write_page(tmp_path / "near.html", suspects, rows)
    browser.open(tmp_path / "near.html")
    first, second = ("ab", "ba")[suspects.given_labels[0]]
    assert browser.texts("[data-row='0'] .examples") == [
        f"nearest {first}text 20text 22text 24",
        f"nearest {second}text 21text 23text 25",
    ]
    assert browser.texts("[data-row='1'] .examples")[2] == "the same, called btext 31"
    assert browser.texts("[data-row='2'] .examples")
    assert not browser.texts("[data-row='4'] .examples")
    assert browser.texts("[data-row='5'] .examples")  # beyond the first, but noted
    shown = "return [...document.querySelectorAll('.card')].map((card) => Number(card.dataset.row))"
    for filtered, cards in (("twins", [1]), ("lonely", [3, 5]), ("all", [*range(6)])):
        Select(browser.find("#filter-status")).select_by_value(filtered)
        assert browser.run(shown) == cards


def test_accepting_a_page_is_one_step_to_undo(browser: Browser, small_page: Callable[..., Path]) -> None:
    browser.open(small_page(("a", "b", "c"), wrong=30))
    browser.find("#accept-page").click()
    assert browser.status.startswith("24 of 30 decided.")
    assert not browser.find("#accept-page").is_enabled()
    browser.find("#page-next").click()
    assert len(browser.texts(".card")) == 6
    browser.keys(Keys.CONTROL, "z")
    assert browser.status.startswith("0 of 30 decided. Undone for 24 rows.")
    assert browser.stored() == []


def test_keys_turn_the_page_and_a_second_press_takes_back(
    browser: Browser, small_page: Callable[..., Path]
) -> None:
    browser.open(small_page(("a", "b"), wrong=26))
    browser.find("body").send_keys("k" * 24)
    assert browser.find("#page-text").text == "25 to 26 of 26"
    assert browser.current == 24
    accept = browser.find('.card[data-row="24"] [data-action=accept]')
    accept.click()
    assert accept.get_attribute("aria-pressed") == "true"
    accept.click()
    assert accept.get_attribute("aria-pressed") == "false"
    assert browser.stored() == [[row, row % 2] for row in range(24)]


def test_single_keys_can_be_switched_off(browser: Browser, small_page: Callable[..., Path]) -> None:
    path = small_page(("a", "b"))
    browser.open(path)
    browser.find("body").send_keys("?")
    browser.find("#keys-on").click()
    browser.find("#help-dialog button").click()
    browser.open(path)
    browser.find("body").send_keys("a")
    assert browser.status == "0 of 12 decided."
    browser.find("[data-action=keep]").click()
    browser.find("body").send_keys(Keys.CONTROL, "z")  # not a single key
    assert browser.status.startswith("0 of 12 decided. Undone")


def test_typing_in_a_field_decides_nothing(browser: Browser, small_page: Callable[..., Path]) -> None:
    browser.open(small_page(("apple", "kiwi", "cherry")))
    browser.find("body").send_keys("c")
    search = browser.find("#choose-search")
    search.send_keys("ak")
    assert browser.find("#choose-hint").text == "No label matches."
    search.send_keys(Keys.ENTER)
    search.send_keys(Keys.ESCAPE)
    assert browser.run("return document.querySelectorAll('dialog[open]').length") == 0
    assert browser.status == "0 of 12 decided."


def test_filters_that_match_nothing_say_so(browser: Browser, small_page: Callable[..., Path]) -> None:
    browser.open(small_page(("a", "b")))
    Select(browser.find("#filter-status")).select_by_value("done")
    assert browser.find("#empty").is_displayed()
    browser.find("body").send_keys("a")  # no card: nothing to decide
    browser.find("#clear-filters").click()
    assert len(browser.texts(".card")) == 12


def test_without_storage_it_warns_and_works(browser: Browser, small_page: Callable[..., Path]) -> None:
    blocked = "Object.defineProperty(window, 'localStorage', {get() { throw new Error('no') }})"
    script = browser.command("Page.addScriptToEvaluateOnNewDocument", source=blocked)
    try:
        browser.open(small_page(("a", "b")))
        assert browser.find("#storage-notice").is_displayed()
        browser.find("body").send_keys("a")
        assert browser.status.startswith("1 of 12 decided.")
        leave = "return window.dispatchEvent(new Event('beforeunload', {cancelable: true}))"
        assert not browser.run(leave)  # asks first
        assert len(read_corrections(browser.export("#export-csv", "corrections.csv"))) == 1
        assert browser.run(leave)
        browser.find("body").send_keys("u")  # the file has what is undone
        assert not browser.run(leave)
    finally:
        browser.command("Page.removeScriptToEvaluateOnNewDocument", **script)


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"labels": 5}', '{"labels": [[0, 9], [99, 0], ["__proto__", 1], 3]}']
)
def test_storage_that_holds_something_else_is_ignored(
    browser: Browser, small_page: Callable[..., Path], text: str
) -> None:
    path = small_page(("a", "b"))
    browser.open(path)
    browser.find("body").send_keys("a")
    browser.run("for (const k of Object.keys(localStorage)) localStorage.setItem(k, arguments[0])", text)
    browser.open(path)
    assert browser.status == "0 of 12 decided."


def test_without_scripts_the_summary_stays(browser: Browser, review: Path) -> None:
    browser.command("Emulation.setScriptExecutionDisabled", value=True)
    browser.open(review)
    assert browser.find(".heat").is_displayed()
    assert "needs JavaScript" in browser.find("noscript").text
    assert not browser.find(".filters").is_displayed()


def test_nothing_is_fetched(browser: Browser, review: Path) -> None:
    browser.open(review)
    loaded = browser.run("return performance.getEntriesByType('resource').map((e) => e.name)")
    assert [name for name in loaded if not name.startswith("data:")] == []


def test_five_thousand_suspects_cost_one_page_of_cards(browser: Browser, tmp_path: Path) -> None:
    num_rows = 6_000
    given = np.arange(num_rows) % 10
    probs = np.full((num_rows, 10), 0.01)
    probs[np.arange(num_rows), (given + (np.arange(num_rows) < 5_000)) % 10] = 0.91
    names = tuple(f"class {label}" for label in range(10))
    rows = NoisyDataset(np.zeros((num_rows, 8, 8, 1), np.uint8), given, None, names, kind="image")
    write_page(tmp_path / "big.html", find_suspects(given, probs, class_names=names), rows)
    browser.open(tmp_path / "big.html")
    assert browser.find("#page-text").text == "1 to 48 of 5,000"
    count = "return document.getElementsByTagName('*').length"
    assert browser.run(count) < 3_000
    browser.run("for (let i = 0; i < 30; i += 1) document.getElementById('page-next').click()")
    assert browser.find("#page-text").text == "1,441 to 1,488 of 5,000"
    assert browser.run(count) < 3_000


def test_the_last_value_of_a_curve_stays_on_one_line(
    browser: Browser, digits: NoisyDataset, tmp_path: Path
) -> None:
    """With the titles that `tolerant train` gives, of which one takes two lines."""
    suspects = find_suspects(digits.given_labels, np.full((len(digits), 10), 0.1))
    history = {title: [1.0, 0.866] for title in CURVES.values()}
    write_page(tmp_path / "curves.html", suspects, digits, history=history)
    browser.open(tmp_path / "curves.html")
    lines = """return [...document.querySelectorAll('.curve strong')].map((value) => {
      const text = document.createRange();
      text.selectNodeContents(value);
      return text.getClientRects().length;
    })"""
    assert browser.run(lines) == [1, 1, 1]


def test_a_class_written_from_right_to_left_stays_in_its_place(
    browser: Browser, small_page: Callable[..., Path]
) -> None:
    browser.open(small_page(("\u05e2\u05d1\u05e8\u05d9\u05ea", "two", "three")))
    places = """return [...document.querySelectorAll('#pairs button')].map((button) => {
      const [name, count] = [button.querySelectorAll('bdi')[1], button.querySelector('small')];
      return [name.textContent, count.getBoundingClientRect().left - name.getBoundingClientRect().right];
    })"""
    found = dict(browser.run(places))
    assert "\u05e2\u05d1\u05e8\u05d9\u05ea" in found
    assert min(found.values()) > 0


def test_each_line_of_a_text_starts_on_the_side_of_its_script(browser: Browser, tmp_path: Path) -> None:
    texts = np.array(["\u05e2\u05d1\u05e8\u05d9\u05ea.\nEnglish."] * 2, dtype=object)
    data = NoisyDataset(texts, np.array([0, 1]), None, ("a", "b"), kind="text")
    suspects = find_suspects(data.given_labels, np.array([[0.1, 0.9], [0.1, 0.9]]), class_names=("a", "b"))
    write_page(tmp_path / "texts.html", suspects, data)
    browser.open(tmp_path / "texts.html")
    gaps = """const words = document.querySelector('.words'), text = document.createRange();
    text.selectNodeContents(words);
    const [box, written] = [words.getBoundingClientRect(), text.getBoundingClientRect()];
    return [written.left - box.left, box.right - written.right];"""
    assert max(browser.run(gaps)) < 20  # English on the left, Hebrew on the right, up to the padding


LUMINANCE = """
const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
const rgba = (color) => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
};
const light = ([r, g, b]) => [r, g, b].map((v) => v / 255)
  .map((v) => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const ground = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const color = rgba(getComputedStyle(e).backgroundColor);
    if (color[3] > 0.9) return color;
  }
  return [255, 255, 255, 1];
};
const poor = [];
for (const e of document.querySelectorAll('body *')) {
  const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  if (!own || !e.checkVisibility() || e.disabled || e.closest('.skip, .hidden')) continue;
  const [a, b] = [light(rgba(getComputedStyle(e).color)), light(ground(e))].sort((x, y) => y - x);
  const ratio = (a + 0.05) / (b + 0.05);
  if (ratio < 4.5) poor.push(`${e.className || e.tagName} ${ratio.toFixed(2)} ${e.textContent}`);
}
return poor;
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_contrast(browser: Browser, review: Path, scheme: str) -> None:
    browser.command(
        "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
    )
    browser.open(review)
    browser.find("body").send_keys("a")
    assert browser.run(LUMINANCE) == []
    dark = browser.run("return getComputedStyle(document.body).backgroundColor") < "rgb(2"
    assert dark == (scheme == "dark")


@pytest.mark.parametrize("width", [390, 1280])
def test_the_name_of_a_class_has_the_width_of_its_card(browser: Browser, review: Path, width: int) -> None:
    """Beside "Suggested" and the share, a word of seven letters was cut in two on a phone."""
    browser.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=844, deviceScaleFactor=1, mobile=True
    )
    browser.open(review)
    share = browser.run(
        "const width = (name) => document.querySelector(`.card ${name}`).clientWidth;"
        "return width('.beliefs .name') / width('.beliefs')"
    )
    assert share > 0.6


def test_files_of_a_long_folder_are_told_apart(browser: Browser, small_page: Callable[..., Path]) -> None:
    ids = [f"{'archive of the clinic, second part/' * 3}{row:03}.png" for row in range(60)]
    browser.open(small_page(("a", "b"), ids))
    clipped = browser.run(
        "return [...document.querySelectorAll('.card .id > span')].map((s) => s.scrollWidth > s.clientWidth)"
    )
    assert clipped == [True, False] * 12  # the folders, the name


def test_a_button_and_its_key_are_in_one_line(browser: Browser, review: Path) -> None:
    browser.command(
        "Emulation.setDeviceMetricsOverride", width=1200, height=900, deviceScaleFactor=1, mobile=False
    )
    browser.open(review)
    heights = "return [...document.querySelectorAll('.current .decide button')].map((b) => b.offsetHeight)"
    assert len(set(browser.run(heights))) == 1
    sticks_out = (
        "const box = document.querySelector('.current .decide'); return box.scrollWidth > box.clientWidth"
    )
    assert not browser.run(sticks_out)


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_nothing_sticks_out_sideways(browser: Browser, review: Path, width: int) -> None:
    browser.command(
        "Emulation.setDeviceMetricsOverride", width=width, height=780, deviceScaleFactor=1, mobile=True
    )
    browser.open(review)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    targets = (
        "return Math.min(...[...document.querySelectorAll('.decide button')].map((b) => b.offsetHeight))"
    )
    assert browser.run(targets) >= (44 if width == 360 else 38)


def test_screen_readers_find_their_way(browser: Browser, review: Path) -> None:
    browser.open(review)
    tree = browser.command("Accessibility.getFullAXTree")["nodes"]
    seen = [
        (node["role"]["value"], node.get("name", {}).get("value", ""))
        for node in tree
        if not node.get("ignored")
    ]
    roles = [role for role, _ in seen]
    assert roles.count("main") == roles.count("banner") == roles.count("contentinfo") == 1
    assert ("navigation", "Pages of suspects") in seen
    assert ("region", "Suspect labels") in seen
    assert ("progressbar", "Decided") in seen
    assert "status" in roles
    for role in ("button", "combobox", "image", "article", "progressbar"):
        assert all(name for found, name in seen if found == role), role
    names = [name for role, name in seen if role == "button"]
    assert any(name.startswith("Accept ") for name in names)
    # The first stops: the skip link, then the filters in reading order.
    stops = []
    for _ in range(6):
        browser.keys(Keys.TAB)
        stops.append(browser.run("return document.activeElement.id || document.activeElement.className"))
    assert stops == ["skip", "search", "filter-given", "filter-suggested", "filter-status", "sort"]


def test_a_random_sample_tells_the_rate_without_the_models_opinion(browser: Browser, tmp_path: Path) -> None:
    given = np.arange(200) % 2
    probs = np.where(np.eye(2)[given] > 0, 0.9, 0.1)
    reviewed = np.arange(200) < 50
    rows = NoisyDataset(
        np.array([f"text {n}" for n in range(200)], object), given, None, ("a", "b"), kind="text"
    )
    suspects = find_suspects(given, probs, reviewed=reviewed, class_names=("a", "b"))
    write_page(tmp_path / "s.html", draw_sample(suspects, rows, reviewed, 40, seed=0), rows, sample=True)
    browser.open(tmp_path / "s.html")
    assert browser.find("#sample-rate").text == "–"
    assert {text.split()[0] for text in browser.texts(".card [data-action]")} == {"Right", "Other…", "Drop"}
    assert not any("Suggested" in words for words in browser.texts(".card"))
    assert not browser.find("#filters").is_displayed()
    assert not browser.find("#pairs").is_displayed()
    for _ in range(12):
        browser.keys("k")
    browser.keys("d")
    browser.keys("c")
    was = browser.texts(".card.current .name")[0]
    browser.find(f'#choices [data-label="{int(was == "a")}"]').click()
    assert browser.status.startswith("14 of 40 decided.")
    low, high = binomtest(2, 14).proportion_ci(method="wilson")
    words = f"between {75 * low:.1f} % and {75 * high:.0f} %, by 2 wrong of 14 decided"
    assert (
        browser.find("#sample-rate").text == "11 %"
    )  # 2 of 14, of the three quarters that nobody had reviewed
    assert browser.find("#sample-between").text == words
    exported = read_corrections(browser.export("#export-csv", "corrections.csv"))
    assert sorted(c.decision for c in exported) == ["change", "drop", *["keep"] * 12]
    browser.find("#undo").click()
    assert "1 wrong of 13" in browser.find("#sample-between").text
