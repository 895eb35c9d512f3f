"""Training on pretrained features: the command line, the run folder, new rows, and the estimator."""

from __future__ import annotations

import csv
import json
import shutil

import numpy as np
import pytest
from own_data_helpers import tolerant
from PIL import Image

from tolerant import NoisyLabelClassifier
from tolerant.data import Source, features
from tolerant.data.dataset import NoisyDataset
from tolerant.data.features.hubs import Hub
from tolerant.extras import install_command
from tolerant.own_data import Settings, load_run
from tolerant.own_data.choose_features import choose_extractor, to_tune
from tolerant.own_data.train_source import _features_and_sides
from tolerant.suspects import find_suspects
from tolerant.suspects.evidence import find_evidence

# Four pictures that a pretrained network tells apart and a mean of pixels does not.
SIDE = 40


@pytest.fixture(autouse=True)
def cache_folder(tmp_path_factory, monkeypatch):
    """One for all tests of a session: the same few pictures are computed once."""
    folder = tmp_path_factory.getbasetemp() / "features"
    monkeypatch.setenv("TOLERANT_CACHE", str(folder))
    return folder


def draw(kind: int, rng: np.random.Generator, side: int = SIDE) -> np.ndarray:
    """Stripes or a disc, in any colours."""
    y, x = np.mgrid[:side, :side] / side
    shift = rng.uniform(0.3, 0.7, 2)
    inside = (np.sin(25 * (x + shift[0])) > 0) if kind == 0 else np.hypot(x - shift[0], y - shift[1]) < 0.25
    colours = rng.integers(0, 256, (2, 3))
    return np.where(inside[..., None], colours[0], colours[1]).astype(np.uint8)


@pytest.fixture(scope="module")
def pictures() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """80 of them with their true and given labels; one in eight is wrong."""
    rng = np.random.default_rng(0)
    true = np.arange(80) % 2
    given = np.where(np.arange(80) % 8 == 5, 1 - true, true)
    return np.stack([draw(kind, rng) for kind in true]), true, given


@pytest.fixture
def folder(pictures, tmp_path):
    images, _, given = pictures
    for number, (image, label) in enumerate(zip(images, given, strict=True)):
        path = tmp_path / "pictures" / ("stripes", "discs")[label] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return tmp_path / "pictures"


FEW = ("--folds", 2, "--epochs", 8)


def test_photographs_take_the_bundled_extractor_and_say_so(folder, tmp_path, pictures):
    said = tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    assert "trained on features of lite0. Without: --features none" in said
    assert "a linear model" in said
    spec = json.loads((tmp_path / "run" / "spec.json").read_text())["features"]
    assert spec["extractor"]["name"] == "lite0"
    assert len(spec["extractor"]["weights"]) == 64
    assert spec["shape"] == [features.BUNDLED["lite0"].dim]
    run = load_run(tmp_path / "run")
    found = {run.load_rows().ids[row] for row in run.suspects(run.load_rows()).index[:8]}
    _, true, given = pictures
    wrong = {f"{('stripes', 'discs')[given[n]]}/{n}.png" for n in np.flatnonzero(true != given)}
    assert len(found & wrong) >= 5  # of eight; by chance one
    assert "lite0" not in tolerant("audit", tmp_path / "run")


def test_predict_takes_raw_pictures_of_any_size(folder, tmp_path):
    tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    rng = np.random.default_rng(1)
    for number in range(10):
        (tmp_path / "new").mkdir(exist_ok=True)
        Image.fromarray(draw(number % 2, rng, 60 + number)).save(tmp_path / "new" / f"{number}.png")
    tolerant("predict", tmp_path / "run", tmp_path / "new", "--out", tmp_path / "new.csv")
    lines = (tmp_path / "new.csv").read_text().splitlines()[1:]
    right = [line.split(",")[1] == ("stripes", "discs")[int(line.split(".")[0]) % 2] for line in lines]
    assert sum(right) >= 9


def test_another_extractor_is_refused_by_name(folder, tmp_path):
    tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    path = tmp_path / "run" / "spec.json"
    spec = json.loads(path.read_text())
    spec["features"]["extractor"]["weights"] = "0" * 64
    path.write_text(json.dumps(spec))
    with pytest.raises(
        ValueError, match=r"trained on features of lite0 \(0.1.0, weights 000000000000.*another"
    ):
        tolerant("predict", tmp_path / "run", folder, "--out", tmp_path / "x.csv")
    spec["features"]["extractor"]["name"] = "lite9"
    path.write_text(json.dumps(spec))
    with pytest.raises(ValueError, match="got 'lite9'"):
        tolerant("predict", tmp_path / "run", folder, "--out", tmp_path / "x.csv")


def test_neighbours_are_evidence(folder, tmp_path, pictures):
    """Examples of both classes beside a suspect; the same picture with two labels; a row like no other."""
    images, *_ = pictures
    image = Image.fromarray(images[8]).resize((39, 39)).resize((SIDE, SIDE))
    image.save(folder / "discs" / "twin.png")  # number 8 has stripes
    noise = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    Image.fromarray(noise).save(folder / "discs" / "noise.png")
    tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    lines = list(csv.DictReader((tmp_path / "run" / "suspects.csv").read_text().splitlines()))
    notes = {line["id"]: line["note"] for line in lines}
    assert notes["discs/twin.png"] == "same with another label"
    run = load_run(tmp_path / "run")
    rows = run.load_rows()
    suspects = run.suspects(rows)
    assert suspects.evidence is not None
    assert suspects.evidence.notes() == [line["note"] for line in lines]
    place = [str(name) for name in suspects.ids].index("discs/twin.png")
    assert rows.ids[suspects.evidence.twin[place]] == "stripes/8.png"
    for near, labels in (
        (suspects.evidence.near_given, suspects.given_labels),
        (suspects.evidence.near_suggested, suspects.suggested_labels),
    ):
        for found, label in zip(near, labels, strict=True):
            assert set(rows.given_labels[found[found >= 0]]) <= {label}
            assert not suspects.is_suspect[found[found >= 0]].any()
    page = (tmp_path / "run" / "report.html").read_text()
    assert '"examplePictures":["data:image/webp' in page
    assert "Same with another label</option>" in page
    before = (tmp_path / "run" / "suspects.csv").read_text()
    tolerant("audit", tmp_path / "run")
    assert (tmp_path / "run" / "suspects.csv").read_text() == before


def test_a_row_like_no_other_is_maybe_none_of_the_classes():
    rng = np.random.default_rng(0)
    centres = np.eye(20)[:2] * 10
    x = np.concatenate([centres[np.arange(300) % 2] + rng.normal(size=(300, 20)), -30 * np.eye(20)[[7]]])
    labels = np.r_[np.arange(300) % 2, 0]
    probs = np.where(np.eye(2)[labels] > 0, 0.9, 0.1)
    probs[[3, 300]] = probs[[3, 300], ::-1]
    suspects = find_suspects(labels, probs)
    found = find_evidence(x.astype(np.float32), labels, suspects)
    assert dict(zip(suspects.index.tolist(), found.notes(), strict=True)) == {
        3: "",
        300: "maybe none of the classes",
    }


def test_rows_of_no_class_that_are_alike_are_still_none_of_the_classes():
    """They are near to each other, but nobody believes their labels."""
    rng = np.random.default_rng(0)
    labels = np.r_[np.arange(300) % 2, np.arange(8) % 2]
    centres = np.array([[4.0] * 10 + [1] * 10 + [0] * 10, [1] * 10 + [4] * 10 + [0] * 10])
    odd = np.array([0.0] * 20 + [1] * 10)
    x = np.abs(np.concatenate([centres[labels[:300]], np.tile(odd, (8, 1))]) + rng.normal(size=(308, 30)) / 4)
    probs = np.where(np.eye(2)[labels] > 0, 0.9, 0.1)
    doubted = np.r_[3, 10, 300:308]
    probs[doubted] = probs[doubted, ::-1]
    suspects = find_suspects(labels, probs)
    found = find_evidence(x.astype(np.float32), labels, suspects)
    lonely = suspects.index[found.lonely]
    assert sorted(lonely.tolist()) == list(range(300, 308))


def test_none_and_a_named_network_see_the_pictures(folder, tmp_path):
    for words in (("--features", "none"), ("--model", "mlp")):
        said = tolerant(
            "train", folder, "--out", tmp_path / words[0][2:], *words, "--folds", 0, "--epochs", 1
        )
        assert "features of" not in said
        assert load_run(tmp_path / words[0][2:]).encoder.shape == (SIDE, SIDE, 3)


@pytest.mark.parametrize(
    ("name", "said"),
    [("lit0", "Did you mean 'lite0'.*Installed for texts: minilm"), ("timm:resnet18", "needs timm: pip")],
)
def test_a_name_is_checked_before_pictures_are_read(name, said, folder, tmp_path, monkeypatch):
    missing = Hub.missing
    monkeypatch.setattr(Hub, "missing", lambda hub: ["timm"] if hub.name == "timm" else missing(hub))
    monkeypatch.setattr(Source, "load", lambda *args, **options: pytest.fail("reads"))
    with pytest.raises((ValueError, ModuleNotFoundError), match=said):
        tolerant("train", folder, "--out", tmp_path / "run", "--features", name)


def test_pictures_of_different_sizes_need_no_size(folder, tmp_path):
    image = Image.open(folder / "stripes" / "0.png")
    image.resize((300, 200)).save(folder / "stripes" / "0.png")
    with pytest.warns(UserWarning, match="all become 40 x 40"):
        tolerant("train", folder, "--out", tmp_path / "small", "--features", "none", *FEW)
    tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    run = load_run(tmp_path / "run")
    assert run.encoder.picture_shape == (128, 128, 3)
    assert run.load_rows().inputs.shape == (80, 128, 128, 3)


def test_large_pictures_are_read_and_seen_larger(folder, tmp_path):
    """The run keeps the size, whatever the sizes of new pictures; features of another size are not taken."""
    for path in folder.rglob("*.png"):
        Image.open(path).resize((150, 180)).save(path)
    said = tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    assert (
        "Features of pictures of 160 pixels, for 1.6 times the time of 128. Those: --features lite0@128"
        in said
    )
    run = load_run(tmp_path / "run")
    assert run.encoder.extractor.name == "lite0@160"
    assert run.encoder.picture_shape == (160, 160, 3)
    assert run.load_rows().inputs.shape == (80, 160, 160, 3)
    (tmp_path / "new").mkdir()
    Image.open(folder / "stripes" / "0.png").resize((40, 40)).save(tmp_path / "new" / "0.png")
    tolerant("predict", tmp_path / "run", tmp_path / "new", "--out", tmp_path / "new.csv")
    assert (tmp_path / "new.csv").read_text().splitlines()[1].split(",")[1] == "stripes"
    tolerant("train", folder, "--out", tmp_path / "usual", "--features", "lite0@128", *FEW)
    assert load_run(tmp_path / "usual").encoder.picture_shape == (128, 128, 3)
    kept = {entry.identity.name: entry.num_rows for entry in features.stored()}
    assert "lite0@160" in kept
    uses = [entry.identity.use for entry in features.stored() if entry.identity.name.startswith("lite0")]
    assert len(uses) == len(set(uses))


def test_grey_pictures_and_tuned_networks_keep_the_usual_size(folder, tmp_path):
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").resize((240, 250)).save(path)
    tolerant("train", folder, "--out", tmp_path / "run", "--features", "lite0", *FEW)
    assert load_run(tmp_path / "run").encoder.extractor.name == "lite0"
    settings = to_tune(Settings(), "lite0")
    assert _features_and_sides(settings, "auto") == ("none", (128,))
    assert _features_and_sides(to_tune(Settings(), "lite0@224"), "auto") == ("none", (224,))


@pytest.mark.parametrize(("num_rows", "said"), [(499, False), (500, True)])
def test_pictures_enough_to_tune_a_network_are_told_so(num_rows, said):
    pictures = np.zeros((num_rows, 32, 32, 3), np.uint8)
    rows = NoisyDataset(pictures, np.arange(num_rows) % 2, None, ("a", "b"), None, "image")
    lines: list[str] = []
    choose_extractor(rows, "auto", device="cpu", say=lines.append)
    assert any("--tune" in line for line in lines) == said


def test_a_changed_picture_is_computed_anew_and_the_others_not(folder, tmp_path):
    tolerant("train", folder, "--out", tmp_path / "run", *FEW)
    rows = {entry.identity.name: entry.num_rows for entry in features.stored()}["lite0"]
    Image.fromarray(draw(0, np.random.default_rng(7))).save(folder / "discs" / "5.png")
    Image.fromarray(draw(0, np.random.default_rng(8))).save(folder / "discs" / "new.png")
    tolerant("train", folder, "--out", tmp_path / "second", *FEW)
    assert {entry.identity.name: entry.num_rows for entry in features.stored()}["lite0"] == rows + 2


def test_a_broken_picture_is_left_out_as_ever(folder, tmp_path):
    (folder / "discs" / "broken.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 of 81 pictures left out: discs/broken.png"):
        tolerant("train", folder, "--out", tmp_path / "run", *FEW)


def test_a_table_has_no_features_to_take(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("a,b,label\n" + "".join(f"{n},{-n},{'xy'[n % 2]}\n" for n in range(20)))
    with pytest.raises(ValueError, match=r"features='lite0' \(--features lite0\) is for pictures and texts"):
        tolerant("train", path, "--out", tmp_path / "run", "--features", "lite0")


def test_grey_and_tiny_pictures_do_not_take_it_by_themselves(folder, tmp_path):
    for path in folder.rglob("*.png"):
        Image.open(path).convert("L").save(path)
    said = tolerant("train", folder, "--out", tmp_path / "run", "--folds", 0, "--epochs", 1)
    assert "features of" not in said


WORDS = (("cat", "dog", "horse", "sheep", "goat"), ("car", "lorry", "bus", "train", "bicycle"))


def sentences(num_rows: int, seed: int) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng(seed)
    true = np.arange(num_rows) % 2
    return [f"a {rng.choice(['red', 'small', 'old'])} {rng.choice(WORDS[kind])}" for kind in true], true


def test_texts(tmp_path):
    """Forms of words that training never saw are near those that it did."""
    texts, true = sentences(80, 0)
    lines = [f"{text},{('animal', 'vehicle')[label]}" for text, label in zip(texts, true, strict=True)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    tolerant("train", tmp_path / "texts.csv", "--out", tmp_path / "run", "--features", "wordllama", *FEW)
    (tmp_path / "new.csv").write_text("text\ntwo cats\nmany cars\ndogs\ntrains\n")
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    labels = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert labels == ["animal", "vehicle", "animal", "vehicle"]


def test_texts_take_what_tells_their_labels_better(tmp_path, monkeypatch):
    """Words where they are enough, features where each text has words of its own; without true labels."""
    monkeypatch.setattr("tolerant.own_data.choose_features.default_extractor", lambda kind: "wordllama")
    rng = np.random.default_rng(0)
    things = WORDS  # with a number behind them, each is a word of its own, but not a piece of one
    meanings = [f"the {rng.choice(things[n % 2])}{rng.integers(10**6)}" for n in range(320)]
    codes = [f"x{rng.integers(10**6)} code{'ab'[n % 2]}" for n in range(320)]
    for name, texts, said in (
        ("meanings", meanings, "trained on the features. Without: --features none"),
        ("codes", codes, "trained on the words. Otherwise: --features wordllama"),
    ):
        true = np.arange(320) % 2
        given = np.where(rng.random(320) < 0.1, 1 - true, true)
        lines = [f"{text},{label}" for text, label in zip(texts, given, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["text,label", *lines]))
        out = tolerant(
            "train", tmp_path / f"{name}.csv", "--out", tmp_path / name, "--folds", 0, "--epochs", 3
        )
        assert said in out.replace("\n", " ")


def test_a_network_learns_from_columns_words_and_features(tmp_path, monkeypatch):
    """To say why, its columns are asked with the features that are known, and no word is taken away."""
    monkeypatch.setattr("tolerant.own_data.choose_features.default_extractor", lambda kind: "wordllama")
    rng = np.random.default_rng(0)
    true = np.arange(320) % 2
    given = np.where(rng.random(320) < 0.1, 1 - true, true)
    texts = [f"the {rng.choice(WORDS[label])}{rng.integers(10**6)} is here" for label in true]
    rows = [f"{text},{label}{label},{which}" for text, label, which in zip(texts, true, given, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["note,size,label", *rows]))
    how = ("--model", "network", "--folds", 2, "--epochs", 3)
    said = tolerant("train", tmp_path / "rows.csv", "--out", tmp_path / "run", *how)
    assert "by both: trained on both. Without: --features none" in said.replace("\n", " ")
    run = load_run(tmp_path / "run")
    data = run.load_rows()
    reasons = run.reasons(data, run.suspects(data))
    assert {name for some in reasons for name, _ in some} == {"size"}


def test_what_takes_minutes_is_said_before(monkeypatch):
    """Features of long texts; a log file shows no bar."""

    class Begun(Exception):
        pass

    def compute(*_: object) -> None:
        raise Begun

    module = "tolerant.own_data.choose_features."
    monkeypatch.setattr(module + "default_extractor", lambda kind: "minilm")
    monkeypatch.setattr(module + "load_extractor", lambda *_: None)
    monkeypatch.setattr(module + "agreements", compute)
    texts, labels = sentences(2500, 0)
    data = NoisyDataset(np.array(texts), labels, None, ("animal", "vehicle"), kind="text")
    said: list[str] = []
    with pytest.raises(Begun):
        choose_extractor(data, "auto", device="cpu", say=said.append)
    assert said[0].startswith("Computing features of minilm for 2,000 of 2,500 texts")
    assert said[0].endswith("Without: --features none")


def test_words_and_meaning_side_by_side(tmp_path, monkeypatch):
    """Half of the texts are told by a code, half by what their words mean: both are needed."""
    monkeypatch.setattr("tolerant.own_data.choose_features.default_extractor", lambda kind: "wordllama")
    rng = np.random.default_rng(0)

    def text(n: int) -> str:
        meaning, code = f"the {rng.choice(WORDS[n % 2])}{rng.integers(10**6)}", f"code{'ab'[n % 2]}"
        return meaning if n % 4 < 2 else f"x{rng.integers(10**6)} {code}"

    true = np.arange(400) % 2
    given = np.where(rng.random(400) < 0.1, 1 - true, true)
    texts = [text(n) for n in range(400)]
    lines = [f"{text},{label}" for text, label in zip(texts, given, strict=True)]
    (tmp_path / "texts.csv").write_text("\n".join(["text,label", *lines]))
    said = tolerant("train", tmp_path / "texts.csv", "--out", tmp_path / "run", "--folds", 3)
    assert "by both: trained on both. Without: --features none" in said.replace("\n", " ")
    run = load_run(tmp_path / "run")
    assert "meaning" in run.spec["classifiers"]
    assert len(run.spec["classifiers"]) > 1
    (tmp_path / "new.csv").write_text("text\n" + "\n".join(texts))
    tolerant("predict", tmp_path / "run", tmp_path / "new.csv", "--out", tmp_path / "out.csv")
    labels = [line.split(",")[1] for line in (tmp_path / "out.csv").read_text().splitlines()[1:]]
    assert (np.array(labels, int) == true).mean() > 0.9


def test_estimator_on_pictures_and_texts(pictures, monkeypatch):
    images, true, given = pictures
    model = NoisyLabelClassifier(features="lite0", epochs=8, folds=2, random_state=0).fit(images, given)
    assert (model.predict(images) == true).mean() > 0.95
    assert (true != given)[np.argsort(model.p_y_)[:8]].mean() > 0.5  # by chance 0.125
    texts, kinds = sentences(80, 1)
    words = NoisyLabelClassifier(features="wordllama", epochs=8, folds=0, random_state=0).fit(texts, kinds)
    assert words.predict(["two cats", "many cars"]).tolist() == [0, 1]
    monkeypatch.setattr("tolerant.adapters.sklearn_inputs.default_extractor", lambda kind: "wordllama")
    auto = NoisyLabelClassifier(features="auto", epochs=8, folds=0, random_state=0).fit(texts, kinds)
    assert auto.n_features_in_ == 256


def test_estimator_sees_large_pictures_larger(pictures):
    images, _, given = pictures
    large = np.stack([np.asarray(Image.fromarray(image).resize((150, 170))) for image in images])
    model = NoisyLabelClassifier(features="lite0", folds=0, random_state=0).fit(large, given)
    assert model._extractor.name == "lite0@160"
    assert model.predict(images[:4]).shape == (4,)  # at 160 pixels, too


def test_estimator_takes_none_by_default(pictures):
    images, _, given = pictures
    model = NoisyLabelClassifier(epochs=1, folds=0, random_state=0).fit(images, given)
    assert model.n_features_in_ != features.BUNDLED["lite0"].dim
    auto = NoisyLabelClassifier(features="auto", epochs=1, folds=0, random_state=0).fit(images, given)
    assert auto.n_features_in_ == features.BUNDLED["lite0"].dim
    with pytest.raises(ValueError, match="is for pictures and texts"):
        NoisyLabelClassifier(features="lite0").fit(np.zeros((9, 3)), np.arange(9) % 2)


def test_what_is_not_installed_is_recommended(folder, tmp_path, monkeypatch):
    monkeypatch.setattr("tolerant.own_data.choose_features.default_extractor", lambda kind: None)
    said = tolerant("train", folder, "--out", tmp_path / "run", "--folds", 0, "--epochs", 1)
    assert install_command("lite0") in said
    shutil.rmtree(tmp_path / "run")
