"""Features of pretrained models: real weights from the registry, tiny models of every source, the cache."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
import types
import zipfile
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
import torch
from data_makers import write_tiny_vit
from torch import nn

from tolerant.data import features
from tolerant.data.features import BUNDLED, Extractor, Identity, extract, find, load_extractor
from tolerant.data.features.cache import FeatureCache
from tolerant.data.features.extract import FeatureRows
from tolerant.data.features.hubs import HUBS
from tolerant.extras import install_command

RNG = np.random.default_rng(0)
PICTURES = RNG.integers(0, 256, (5, 20, 24, 3), np.uint8)
TEXTS = np.array(["a red car", "the blue automobile", "how to cook rice", "rice with beans", ""], object)
INSTALLED = [card for card in BUNDLED.values() if not card.missing()]


@pytest.fixture(autouse=True)
def load_anew():
    """What was loaded before is not known."""
    find._load_card.cache_clear()


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TOLERANT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def no_network(monkeypatch):
    """Every address refuses, at once."""

    def refuse(*args, **kwargs):
        raise OSError("no network in this test")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for word in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(word, raising=False)


def counting(dim: int = 3, batch_size: int = 2, name: str = "fake") -> tuple[Extractor, list[int]]:
    """An extractor of sums of pixels, and the number of rows of each of its calls."""
    calls: list[int] = []

    def encode(rows):
        calls.append(len(rows))
        sums = torch.tensor([float(np.asarray(row, np.float64).mean()) for row in rows])
        return sums[:, None, None] * torch.arange(1.0, dim + 1) / 256

    return Extractor(Identity(name, "1", name, ""), "image", encode, 1, batch_size), calls


def all_rows(found):
    return found[np.arange(len(found))]


# Bundled ones, on their real weights.


@pytest.mark.parametrize("card", INSTALLED, ids=lambda card: card.name)
def test_bundled_extractor(card, no_network):
    """One vector a row, whatever else is in the batch; weights that are known by their digest; no network."""
    rows = PICTURES if card.kind == "image" else TEXTS
    extractor = load_extractor(card.name, card.kind)
    found = extract(rows, extractor)
    assert found.shape == (5, card.dim)
    assert found.dtype == np.float32
    alone = extractor([str(rows[0])] if card.kind == "text" else rows[:1])
    np.testing.assert_allclose(found[np.array([0])], alone.mean(1), rtol=2e-3, atol=2e-3)  # stored as float16
    assert load_extractor(card.name, card.kind).identity == extractor.identity
    assert len(extractor.identity.weights) == 64


def test_what_make_test_installs():
    assert {"lite0", "minilm", "wordllama"} <= {card.name for card in INSTALLED}


def test_lite_is_the_network_of_its_package():
    """Batch norm and padding folded in and channels last: as near as float32 gets."""
    card = BUNDLED["lite0"]
    from efficientnet_lite_pytorch import EfficientNet

    net = EfficientNet.from_name("efficientnet-lite0")
    net.load_state_dict(torch.load(card.path(), weights_only=True))
    encoder = load_extractor("lite0", "image").encode
    pixels = encoder.frame(torch.from_numpy(PICTURES).permute(0, 3, 1, 2))
    assert tuple(pixels.shape) == (5, 3, 128, 128)
    maps: dict[int, torch.Tensor] = {}
    for place in (7, 10, 14):  # where stages of 80, 112 and 192 channels end
        net._blocks[place].register_forward_hook(lambda _, __, x, place=place: maps.update({place: x}))
    with torch.inference_mode():
        last = net.eval().extract_features(pixels)
    wanted = [last.mean((2, 3))]
    for x in maps.values():
        by_row = x.mean(3).tensor_split(2, dim=2)
        wanted += [x.mean((2, 3)), x.flatten(2).std(2), by_row[0].mean(2) - by_row[1].mean(2)]
    np.testing.assert_allclose(encoder(PICTURES)[:, 0], torch.cat(wanted, 1), atol=2e-4)


def test_a_size_is_part_of_the_name():
    """The usual size has the features it always had; those of another are kept apart."""
    usual, named, large = (load_extractor(name, "image") for name in ("lite0", "lite0@128", "lite0@160"))
    assert usual.identity == named.identity
    assert usual.identity.key != large.identity.key
    assert usual.identity.use.startswith("128 px, bilinear, ")
    assert (usual.batch_size, large.batch_size) == (20, 12)
    np.testing.assert_array_equal(usual(PICTURES), named(PICTURES))
    assert np.abs(usual(PICTURES) - large(PICTURES)).max() > 1e-2
    assert find.load_known(large.identity, "image").encode.frame.size == 160
    with pytest.raises(ValueError, match=r"features='lite0@130' .*: lite0@128, lite0@160, lite0@192, lite0@"):
        load_extractor("lite0@130", "image")
    with pytest.raises(ValueError, match="minilm, which has no sizes"):
        load_extractor("minilm@128", "text")


def test_texts_of_like_meaning_are_near():
    for name in ("minilm", "wordllama"):
        found = all_rows(extract(TEXTS[:4], load_extractor(name, "text")))
        found = found / np.linalg.norm(found, axis=1, keepdims=True)
        near = found @ found.T
        assert near[0, 1] > near[0, 2] + 0.2
        assert near[2, 3] > near[1, 3] + 0.2


def test_a_mirrored_picture_has_the_same_features():
    extractor = load_extractor("lite0", "image")
    both = extractor(np.stack([PICTURES[0], PICTURES[0][:, ::-1]]))
    np.testing.assert_allclose(both[0, 0], both[1, 1], atol=1e-5)
    assert np.abs(both[0, 0] - both[0, 1]).max() > 1e-3
    found = all_rows(extract(np.stack([PICTURES[0], PICTURES[0][:, ::-1]]), extractor))
    np.testing.assert_allclose(found[0], found[1], atol=2e-3)


def test_grey_pictures_have_features_too():
    grey = PICTURES[..., :1]
    extractor = load_extractor("lite0", "image")
    np.testing.assert_allclose(extractor(grey), extractor(np.repeat(grey, 3, 3)), atol=1e-5)


# Names.


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("lite00", "image", "Did you mean 'lite0'?.*Installed for pictures: lite0"),
        ("minlm", "text", "Did you mean 'minilm'?.*Installed for texts: minilm"),
        ("lite9", "text", "got .lite9.\\. Installed for texts"),
        ("timmm:x", "image", "Did you mean 'timm:'?"),
        ("resnet", "image", "timm:resnet50.a1_in1k.*torch:PATH"),
        ("lite", "image", "Did you mean 'lite0' or 'lite1' or 'lite2'?"),
        ("timm:", "image", "Its model is missing"),
        ("hf:", "text", "features must name an extractor"),
        ("lite0", "text", "lite0 is for pictures, and these rows are texts; for them: minilm, wordllama"),
        ("minilm", "image", "minilm is for texts"),
        ("st:all-mpnet-base-v2", "image", "for texts, and these rows are pictures"),
        ("torch:no/such.pt2", "image", "no file"),
        ("torch:x.pt2", "text", "takes pictures"),
    ],
)
def test_unknown_names(name, kind, said, no_network):
    with pytest.raises((ValueError, FileNotFoundError), match=said):
        load_extractor(name, kind)


def test_what_is_not_installed_is_said(monkeypatch):
    def gone(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", gone)
    with pytest.raises(ModuleNotFoundError, match=r"lite0 needs .*pip install .*\[lite0\]'"):
        load_extractor("lite0", "image")
    with pytest.raises(ModuleNotFoundError, match=r"pip install .*\[timm\]'"):
        load_extractor("timm:resnet50", "image")
    assert features.default_extractor("image") is None
    lines = dict(features.list_extractors())
    assert f"missing: {install_command('minilm')}" in lines["minilm"]


def test_every_extra_exists():
    """The way out that an error names is one that pip knows."""
    import tomllib
    from pathlib import Path

    extras = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
    for found in (*BUNDLED.values(), *HUBS.values()):
        assert found.extra in extras["optional-dependencies"], found.name


def test_no_network_is_said_at_once(no_network, monkeypatch):
    """The hub's own library would try again and again, with pauses of minutes in all."""
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waits for the network"))
    with pytest.raises(ConnectionError, match=r"hf:no/such-model .*cannot be reached.*lite0.*minilm"):
        load_extractor("hf:no/such-model", "image")


# Sources.


def tiny_bert(folder, pooling: dict | None = None) -> nn.Module:
    import transformers

    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "red", "car", "rice"]
    (folder / "vocab.txt").write_text("\n".join(words))
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8
    )
    torch.manual_seed(0)
    net = transformers.BertModel(config).eval()
    net.save_pretrained(folder)
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return net


@pytest.mark.parametrize("pooling", [None, "mean", "cls"])
def test_text_model_of_a_folder_pools_as_its_card_says(pooling, tmp_path, no_network):
    card = (
        {f"pooling_mode_{word}": word.startswith(pooling) for word in ("cls_token", "mean_tokens")}
        if pooling
        else None
    )
    net = tiny_bert(tmp_path, card)
    extractor = load_extractor(f"hf:{tmp_path}", "text")
    got = extractor(["a red car", "rice"])
    assert got.shape == (2, 1, 16)
    import transformers

    words = transformers.AutoTokenizer.from_pretrained(tmp_path)("rice", return_tensors="pt")
    with torch.no_grad():
        states = net(**words).last_hidden_state[0]
    want = states[0] if pooling == "cls" else states.mean(0)
    np.testing.assert_allclose(got[1, 0], want, atol=1e-5)


def test_picture_model_of_a_folder(tmp_path, no_network):
    write_tiny_vit(tmp_path)
    extractor = load_extractor(f"hf:{tmp_path}", "image")
    assert extractor(PICTURES).shape == (5, 2, 16)
    assert "32 px, bilinear" in extractor.identity.use


def test_weights_in_a_pickle_are_refused(tmp_path, no_network):
    net = tiny_bert(tmp_path)
    torch.save(net.state_dict(), tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="safetensors; those in a pickle are not read"):
        load_extractor(f"hf:{tmp_path}", "text")


def fake_source(monkeypatch, source: str, module: str, **parts) -> None:
    """A stand-in for a library that the tests do not install, with the calls that are documented."""
    fake = types.ModuleType(module)
    for name, part in parts.items():
        setattr(fake, name, part)
    fake.__version__ = "9.9"
    monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.setitem(HUBS, source, dataclasses.replace(HUBS[source], needs=()))


class Pooled(nn.Module):
    def __init__(self, dim=4):
        super().__init__()
        self.conv = nn.Conv2d(3, dim, 3)

    def forward(self, pixels):
        return self.conv(pixels).mean((2, 3))


def test_timm(monkeypatch):
    config = {"input_size": (3, 48, 48), "mean": (0.5,) * 3, "std": (0.2,) * 3, "interpolation": "bicubic"}

    def create_model(name, pretrained, num_classes):
        assert (name, pretrained, num_classes) == ("resnet50.a1_in1k", True, 0)
        return Pooled()

    data = types.SimpleNamespace(resolve_model_data_config=lambda net: config)
    listed = lambda pattern="": ["resnet50", "resnet50d"]  # noqa: E731
    fake_source(monkeypatch, "timm", "timm", create_model=create_model, data=data, list_models=listed)
    extractor = load_extractor("timm:resnet50.a1_in1k", "image")
    assert extractor(PICTURES).shape == (5, 2, 4)
    assert "48 px, bicubic" in extractor.identity.use
    assert extractor.identity.version == "timm 9.9"
    with pytest.raises(ValueError, match="near: resnet50"):
        load_extractor("timm:resnet5", "image")


def test_open_clip(monkeypatch):
    class Clip(nn.Module):
        def __init__(self):
            super().__init__()
            self.picture, self.words = Pooled(), nn.Embedding(300, 6)

        def encode_image(self, pixels):
            return self.picture(pixels)

        def encode_text(self, tokens):
            return self.words(tokens).mean(1)

    def create_model(architecture, pretrained, require_pretrained):
        assert (architecture, pretrained, require_pretrained) == ("ViT-B-32", "openai", True)
        return Clip()

    config = {"size": (40, 40), "mean": (0.5,) * 3, "std": (0.2,) * 3, "interpolation": "bicubic"}
    fake_source(
        monkeypatch,
        "open_clip",
        "open_clip",
        create_model=create_model,
        list_pretrained=lambda: [("ViT-B-32", "openai")],
        get_model_preprocess_cfg=lambda net: config,
        get_tokenizer=lambda name: (
            lambda texts: torch.tensor([[ord(c) for c in f"{t:>5}"[:5]] for t in texts])
        ),
    )
    assert load_extractor("open_clip:ViT-B-32/openai", "image")(PICTURES).shape == (5, 2, 4)
    assert load_extractor("open_clip:ViT-B-32/openai", "text")(list(TEXTS)).shape == (5, 1, 6)
    with pytest.raises(ValueError, match="ViT-B-32/openai"):
        load_extractor("open_clip:ViT-B-32/nobody", "image")


def test_sentence_transformers(monkeypatch):
    class SentenceTransformer(nn.Module):
        max_seq_length = 64

        def __init__(self, name, device, model_kwargs, local_files_only):
            super().__init__()
            assert (name, model_kwargs, local_files_only) == ("mine", {"use_safetensors": True}, True)
            self.words = nn.Linear(1, 7)

        def encode(self, texts, convert_to_tensor, show_progress_bar):
            return self.words(torch.tensor([[float(len(text))] for text in texts])).detach()

    fake_source(monkeypatch, "st", "sentence_transformers", SentenceTransformer=SentenceTransformer)
    assert load_extractor("st:mine", "text")(["a", "bc"]).shape == (2, 1, 7)


# A file of one's own.


def save_program(path, net, batch=None):
    dynamic = None if batch else ({0: torch.export.Dim("n", min=1)},)
    example = torch.zeros(batch or 2, 3, 16, 16)
    torch.export.save(torch.export.export(net.eval(), (example,), dynamic_shapes=dynamic), path)


def test_own_program(tmp_path):
    net = Pooled()
    save_program(tmp_path / "mine.pt2", net)
    extractor = load_extractor(f"torch:{tmp_path / 'mine.pt2'}", "image")
    pictures = PICTURES[:, :16, :16]
    with torch.no_grad():
        want = net(torch.from_numpy(pictures).permute(0, 3, 1, 2) / 255)
    np.testing.assert_allclose(extractor(pictures)[:, 0], want, atol=1e-5)
    assert extract(pictures, extractor).shape == (5, 4)


def test_own_program_for_one_number_of_pictures(tmp_path):
    save_program(tmp_path / "two.pt2", Pooled(), batch=2)
    extractor = load_extractor(f"torch:{tmp_path / 'two.pt2'}", "image")
    with pytest.raises(ValueError, match=r"exported for 2 pictures at a time, and refuses 5.*dynamic_shapes"):
        extractor(PICTURES)


class Evil:
    def __reduce__(self):
        return os.system, ("touch executed",)


def test_own_file_with_a_pickle_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = tmp_path / "plain.pt2"
    plain.write_bytes(pickle.dumps(Evil()))
    save_program(tmp_path / "mine.pt2", Pooled())
    marked, inputs = tmp_path / "marked.pt2", tmp_path / "inputs.pt2"
    with zipfile.ZipFile(tmp_path / "mine.pt2") as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    for path, part, change in (
        (
            marked,
            "weights_config.json",
            lambda data: data.replace(b'"use_pickle": false', b'"use_pickle": true'),
        ),
        (inputs, "sample_inputs/", lambda data: pickled()),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            touched = [name for name in entries if part in name]
            assert touched, entries.keys()
            for name, data in entries.items():
                archive.writestr(name, change(data) if name in touched else data)
    for path in (plain, marked, inputs):
        with pytest.raises(ValueError, match="is refused"):
            load_extractor(f"torch:{path}", "image")
    assert not (tmp_path / "executed").exists()


def pickled() -> bytes:
    data = io.BytesIO()
    torch.save(Evil(), data)
    return data.getvalue()


def test_a_model_without_one_vector_a_row_is_refused_with_its_shape(tmp_path):
    class Map(Pooled):
        def forward(self, pixels):
            return self.conv(pixels)

    save_program(tmp_path / "map.pt2", Map())
    extractor = load_extractor(f"torch:{tmp_path / 'map.pt2'}", "image")
    with pytest.raises(ValueError, match=r"one vector for each row, \(5, D\).*\(5, 4, 14, 14\)"):
        extractor(PICTURES[:, :16, :16])


def test_numbers_that_are_not_finite_are_refused():
    broken = Extractor(
        Identity("x", "1", "x", ""), "image", lambda rows: torch.full((len(rows), 1, 2), torch.nan)
    )
    with pytest.raises(ValueError, match="not finite"):
        broken(PICTURES)


# The cache.


def test_nothing_is_computed_twice():
    extractor, calls = counting()
    first = extract(PICTURES, extractor)
    assert sum(calls) == 5 + 1  # one more to know the length of a vector
    calls.clear()
    changed = PICTURES.copy()
    changed[3, 0, 0] ^= 255
    more = np.concatenate([changed, PICTURES[:1] ^ 1, changed[:2]])
    second = extract(more, extractor)
    assert sum(calls) == 2 + 1  # the changed and the added one; the last two are copies
    np.testing.assert_array_equal(first[np.array([0, 4])], second[np.array([6, 4])])
    assert second[np.array([3])] != pytest.approx(first[np.array([3])])


def test_pictures_of_equal_bytes_and_another_width_differ():
    extractor, calls = counting()
    extract(PICTURES, extractor)
    extract(PICTURES.reshape(5, 24, 20, 3), extractor)
    assert sum(calls) == 12


def test_another_extractor_has_other_features():
    (first, _), (second, calls) = counting(), counting(name="other")
    extract(PICTURES, first)
    extract(PICTURES, second)
    assert sum(calls) == 6
    assert {entry.identity.name for entry in features.stored()} == {"fake", "other"}


@pytest.mark.parametrize("file", ["rows.bin", "keys.bin"])
@pytest.mark.parametrize("left", [0, 1, 7, 20])
def test_a_cut_file_is_found_and_rebuilt(file, left, cache_folder):
    extractor, calls = counting()
    before = all_rows(extract(PICTURES, extractor))
    (path,) = cache_folder.glob(f"*/{file}")
    os.truncate(path, left)
    calls.clear()
    np.testing.assert_array_equal(all_rows(extract(PICTURES, extractor)), before)
    assert 5 >= sum(calls) - 1 >= 1
    calls.clear()
    extract(PICTURES, extractor)
    assert sum(calls) == 1


def test_a_damaged_row_is_computed_again(cache_folder):
    extractor, calls = counting()
    before = all_rows(extract(PICTURES, extractor))
    (path,) = cache_folder.glob("*/rows.bin")
    data = bytearray(path.read_bytes())
    data[7] ^= 0x10
    path.write_bytes(bytes(data))
    calls.clear()
    np.testing.assert_array_equal(all_rows(extract(PICTURES, extractor)), before)
    assert sum(calls) == 2


def test_kill_loses_at_most_a_batch(cache_folder):
    """A process that is killed in its third batch leaves two in the cache."""
    script = textwrap.dedent("""
        import os, signal, sys
        import numpy as np, torch
        from tolerant.data.features import Extractor, Identity, extract
        calls = []
        def encode(rows):
            calls.append(len(rows))
            if len(calls) == 4:  # the first call measures one row
                os.kill(os.getpid(), signal.SIGKILL)
            return torch.ones(len(rows), 1, 3)
        rows = np.arange(10 * 4, dtype=np.uint8).reshape(10, 2, 2, 1)
        extract(rows, Extractor(Identity("fake", "1", "fake", ""), "image", encode, 1, 2))
    """)
    done = subprocess.run([sys.executable, "-c", script], env={**os.environ}, check=False)
    assert done.returncode == -signal.SIGKILL
    extractor, calls = counting()
    rows = np.arange(10 * 4, dtype=np.uint8).reshape(10, 2, 2, 1)
    extract(rows, extractor)
    assert sum(calls) == 10 - 4 + 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says it")
def test_pages_of_the_cache_are_given_back():
    """Rows of 16 MiB, all of them looked at when they are found and when they are read."""
    cache = FeatureCache(features.cache_root(), Identity("x", "1", "x", ""), views=2, dim=2048)
    digests = np.arange(2048)
    cache.append(digests, np.ones((2048, 2, 2048), np.float16))
    before = mapped_mib()
    rows = FeatureRows(cache.rows(), cache.find(digests), digests)
    for index in (np.arange(0, 2048, 3), np.arange(2048)):
        assert (rows[index] == 1).all()
        assert mapped_mib() - before < 8
    assert (rows[5] == 1).all()
    assert rows[np.array([[1, 2]])].shape == (1, 2, 2048)
    assert rows.views(np.array([1, 2])).shape == (2, 2, 2048)


def mapped_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssFile")) / 1024


def test_the_limit_removes_the_longest_unused_first(monkeypatch, cache_folder):
    names = ("first", "second", "third")
    for number, name in enumerate(names):
        extract(PICTURES, counting(name=name)[0])
        for about in cache_folder.glob("*/about.json"):
            if json.loads(about.read_text())["name"] == name:
                os.utime(about, (number, number))
    sizes = {entry.identity.name: entry.num_bytes for entry in features.stored()}
    monkeypatch.setenv("TOLERANT_CACHE_GIB", str((sum(sizes.values()) + 10) / 2**30))
    extract(PICTURES, counting(name="fourth")[0])
    assert {entry.identity.name for entry in features.stored()} == {"second", "third", "fourth"}


def test_the_limit_keeps_what_is_needed_now(monkeypatch):
    extractor, _ = counting()
    extract(PICTURES, extractor)
    monkeypatch.setenv("TOLERANT_CACHE_GIB", "0")
    mine = np.concatenate([PICTURES[:2], PICTURES[:1] ^ 1])
    want = [float(row.mean()) / 256 for row in mine]
    np.testing.assert_allclose(all_rows(extract(mine, extractor))[:, 0], want, rtol=1e-3)
    (entry,) = features.stored()
    assert entry.num_rows == 3


@pytest.mark.parametrize("word", ["much", "inf", "nan", "-1"])
def test_limit_must_be_a_number(word, monkeypatch):
    monkeypatch.setenv("TOLERANT_CACHE_GIB", word)
    with pytest.raises(
        ValueError, match=f"TOLERANT_CACHE_GIB must be a number of GiB, such as 20; got '{word}'"
    ):
        extract(PICTURES, counting()[0])


def test_clear_leaves_what_is_not_ours(cache_folder):
    extract(PICTURES, counting()[0])
    (cache_folder / "notes").mkdir()
    (cache_folder / "notes" / "about.json").write_text("{}")
    with pytest.raises(ValueError, match="no features of 'fka'; it has fake"):
        features.clear("fka")
    assert features.clear("fake") > 0
    assert features.stored() == []
    assert (cache_folder / "notes" / "about.json").exists()


def test_a_full_disk_is_said(monkeypatch):
    cache = FeatureCache(features.cache_root(), Identity("x", "1", "x", ""), views=1, dim=2)
    cache.append(np.array([1]), np.ones((1, 1, 2)))

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("builtins.open", full)
    with pytest.raises(OSError, match=r"No space left.*TOLERANT_CACHE"):
        cache.append(np.array([2]), np.ones((1, 1, 2)))
    monkeypatch.undo()


def test_another_process_may_clear_the_cache():
    extractor, _ = counting()
    extract(PICTURES, extractor)
    shutil.rmtree(features.cache_root())
    assert extract(PICTURES, extractor).shape == (5, 3)


# The command line.


def tolerant(*words: str):
    import typer.testing

    from tolerant.cli import make_app

    return typer.testing.CliRunner().invoke(make_app(), list(words))


def test_cache_command(cache_folder):
    extract(PICTURES, counting()[0])
    shown = tolerant("cache").output
    assert str(cache_folder) in shown.replace("\n", "")
    assert "fake" in shown
    assert "5 rows" in shown
    assert tolerant("cache", "--features", "fake").exit_code == 2
    assert "freed" in tolerant("cache", "--clear", "--features", "fake").output
    assert "fake" not in tolerant("cache").output


def test_doctor_lists_extractors():
    shown = tolerant("doctor").output
    for name, _ in features.list_extractors():
        assert f"  {name} " in shown
    assert "installed" in shown
