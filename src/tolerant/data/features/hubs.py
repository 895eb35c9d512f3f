"""Extractors from where the ecosystem keeps its models, by its own names; fetched only when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tolerant.data.features.extractor import Extractor, Identity, Kind, weights_digest
from tolerant.data.features.picture_networks import Body, Frame, as_vectors
from tolerant.data.hub_network import offline, unreachable
from tolerant.extras import extra, install_command
from tolerant.files import read_json

_LONGEST_TEXT = 512  # word pieces


@dataclass(frozen=True)
class Hub:
    """A source of models: its word before the colon, and how one of them is loaded."""

    name: str
    kinds: tuple[Kind, ...]
    example: str
    extra: str
    needs: tuple[str, ...]
    load: Callable[[str, str, Kind, torch.device], Extractor]
    body: Callable[[str, str], Body] | None = None
    """Of pictures: the network by (name, model), to be trained further."""

    def missing(self) -> list[str]:
        def is_missing(name: str) -> bool:
            with suppress(metadata.PackageNotFoundError):
                return not metadata.version(name)
            return True

        return [name for name in self.needs if is_missing(name)]

    @property
    def install(self) -> str:
        return install_command(self.extra)


def check_reachable(name: str) -> None:
    """A ConnectionError where the hub cannot be reached."""
    if why := unreachable():
        from tolerant.data.features.bundled import BUNDLED

        raise ConnectionError(
            f"{name} is not on this machine, and the hub cannot be reached ({why}). Without a network use "
            f"one that installs whole: {', '.join(BUNDLED)}; or a folder with the model's files, hf:PATH"
        )


def _fetched(name: str, load: Callable[[bool], Any]) -> Any:
    """``load(local_only)`` from this machine if the model is on it, else from the hub."""
    try:
        return load(True)
    except (OSError, ValueError):
        check_reachable(name)
    try:
        return load(False)
    except (OSError, ValueError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ValueError(
            f"{name} cannot be loaded: {first}. Is the model's name right, and are its weights there as "
            "safetensors? Those in a pickle are not read."
        ) from error


def _transformer(name: str, model: str, kind: Kind) -> tuple[str, Any, Any]:
    """(where it was found, the model, what prepares its rows) by the transformers library."""
    transformers = extra("transformers", install="transformers")
    if Path(model).expanduser().is_dir():
        model = str(Path(model).expanduser())
        if not any(Path(model).glob("*.safetensors")):
            raise ValueError(
                f"{model} has no weights as safetensors; those in a pickle are not read. Where you trust it, "
                "write them with transformers: AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
            )

    def load(local_only: bool) -> tuple[Any, Any]:
        options = {"local_files_only": local_only}
        make = transformers.AutoImageProcessor if kind == "image" else transformers.AutoTokenizer
        with offline(local_only):  # it looks for adapters on the hub in spite of local_files_only
            net = transformers.AutoModel.from_pretrained(model, use_safetensors=True, **options)
            return net, make.from_pretrained(model, **options)

    with _no_bars(transformers):
        return model, *_fetched(name, load)


class _ImageFeatures(nn.Module):
    """The part of a model for pictures and texts that is for pictures."""

    def __init__(self, net: Any, method: str) -> None:
        super().__init__()
        self.net, self._method = net, method

    def forward(self, pixels: torch.Tensor) -> Any:
        return getattr(self.net, self._method)(pixels)


def _hf_body(name: str, model: str) -> Body:
    _, net, processor = _transformer(name, model, "image")
    digest, version = weights_digest(net), f"transformers {extra('transformers').__version__}"
    if hasattr(net, "get_image_features"):
        net = _ImageFeatures(net, "get_image_features")
    return Body(name, version, net, _processor_frame(processor), digest)


def load_hf(name: str, model: str, kind: Kind, device: torch.device) -> Extractor:
    """A model of the transformers library, from the hub or a folder."""
    if kind == "image":
        return _hf_body(name, model).extractor(device)
    model, net, prepare = _transformer(name, model, kind)
    net = net.eval().requires_grad_(False).to(device)
    digest, version = weights_digest(net), f"transformers {extra('transformers').__version__}"
    pooling, longest = _text_options(model, prepare, net)

    @torch.inference_mode()
    def encode(texts: list[str]) -> torch.Tensor:
        words = prepare(texts, padding=True, truncation=True, max_length=longest, return_tensors="pt").to(
            device
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            output = net.get_text_features(**words) if hasattr(net, "get_text_features") else net(**words)
        if pooling == "mean":
            mask = words["attention_mask"][..., None].float()
            return ((output.last_hidden_state.float() * mask).sum(1) / mask.sum(1).clamp_min(1))[:, None]
        return (output.last_hidden_state[:, 0] if pooling == "cls" else as_vectors(output))[:, None]

    identity = Identity(name, version, digest, f"{pooling} pooling, {longest} word pieces")
    return Extractor(identity, "text", encode, 1, 256 if device.type == "cuda" else 32)


@contextmanager
def _no_bars(transformers: Any) -> Iterator[None]:
    """Inside, the library shows no bar of its own, which a log would keep for every model loaded."""
    bars = transformers.utils.logging
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            bars.enable_progress_bar()


def _processor_frame(processor: Any) -> Frame:
    size = getattr(processor, "crop_size", None) or processor.size
    side = size if isinstance(size, int) else next(iter(dict(size).values()))
    return Frame(
        size=int(side),
        mean=getattr(processor, "image_mean", None) or (0.0,) * 3,
        std=getattr(processor, "image_std", None) or (1.0,) * 3,
        interpolation="bilinear" if int(getattr(processor, "resample", None) or 3) == 2 else "bicubic",
    )


def _text_options(model: str, tokenizer: Any, net: Any) -> tuple[str, int]:
    """How word pieces become one vector, and how many count, as the model's card says; else mean and 512."""
    pooling, longest = "mean", min(int(tokenizer.model_max_length), _LONGEST_TEXT)
    if hasattr(net, "get_text_features"):
        return "its own", longest
    find = extra("transformers.utils").cached_file
    said = {}
    for file in ("1_Pooling/config.json", "sentence_bert_config.json"):
        with suppress(OSError, ValueError):
            path = find(
                model,
                file,
                local_files_only=Path(model).is_dir(),
                _raise_exceptions_for_missing_entries=False,
            )
            said[file] = read_json(path) if path else {}
    if said.get("1_Pooling/config.json", {}).get("pooling_mode_cls_token"):
        pooling = "cls"
    wanted = said.get("sentence_bert_config.json", {}).get("max_seq_length")
    return pooling, min(longest, int(wanted)) if wanted else longest


def _timm_body(name: str, model: str) -> Body:
    timm = extra("timm", install="timm")
    if not model.startswith("local-dir:") and model.partition(".")[0] not in timm.list_models():
        near = timm.list_models(f"*{model.partition('.')[0]}*")[:5]
        raise ValueError(f"timm knows no model {model!r}" + (f"; near: {', '.join(near)}" if near else ""))

    def load(local_only: bool) -> Any:
        with offline(local_only):
            return timm.create_model(model, pretrained=True, num_classes=0)

    net = load(True) if model.startswith("local-dir:") else _fetched(name, load)
    config = timm.data.resolve_model_data_config(net)
    frame = Frame(
        size=config["input_size"][1],
        mean=config["mean"],
        std=config["std"],
        interpolation=config["interpolation"],
    )
    return Body(name, f"timm {timm.__version__}", net, frame)


def _load_timm(name: str, model: str, kind: Kind, device: torch.device) -> Extractor:
    return _timm_body(name, model).extractor(device)


def _load_open_clip(name: str, model: str, kind: Kind, device: torch.device) -> Extractor:
    """``ARCHITECTURE/WEIGHTS`` such as ViT-B-32/laion2b_s34b_b79k, or its own hf-hub:... and local-dir:..."""
    open_clip = extra("open_clip", install="open_clip")
    schema = model.startswith(("hf-hub:", "local-dir:"))
    architecture, _, tag = (model, "", "") if schema else model.partition("/")
    if not schema and (architecture, tag) not in open_clip.list_pretrained():
        known = [f"{a}/{t}" for a, t in open_clip.list_pretrained() if a == architecture][:5]
        raise ValueError(
            f"open_clip has no weights {model!r}; "
            + (f"it has {', '.join(known)} ..." if known else "give ARCHITECTURE/WEIGHTS, as ViT-B-32/openai")
        )

    def load(local_only: bool) -> Any:
        with offline(local_only):
            return open_clip.create_model(architecture, pretrained=tag or None, require_pretrained=True)

    net = _fetched(name, load)
    digest, version = weights_digest(net), f"open_clip {open_clip.__version__}"
    config = open_clip.get_model_preprocess_cfg(net)
    if kind == "text":
        tokenizer = open_clip.get_tokenizer(architecture)
        net = net.eval().requires_grad_(False).to(device)

        @torch.inference_mode()
        def encode(texts: list[str]) -> torch.Tensor:
            return net.encode_text(tokenizer(texts).to(device))[:, None]

        return Extractor(Identity(name, version, digest, "encode_text"), "text", encode, 1, 64)
    size = config["size"]
    frame = Frame(
        size=size if isinstance(size, int) else size[0],
        mean=config["mean"],
        std=config["std"],
        interpolation=config["interpolation"],
    )
    return Body(name, version, _ImageFeatures(net, "encode_image"), frame, digest).extractor(device)


def _load_st(name: str, model: str, kind: Kind, device: torch.device) -> Extractor:
    library = extra("sentence_transformers", install="st")

    def load(local_only: bool) -> Any:
        options = {"model_kwargs": {"use_safetensors": True}, "local_files_only": local_only}
        with offline(local_only):
            return library.SentenceTransformer(str(Path(model).expanduser()), device=str(device), **options)

    net = _fetched(name, load)

    def encode(texts: list[str]) -> torch.Tensor:
        return net.encode(texts, convert_to_tensor=True, show_progress_bar=False)[:, None]

    use = f"encode, {getattr(net, 'max_seq_length', None)} word pieces"
    identity = Identity(name, f"sentence_transformers {library.__version__}", weights_digest(net), use)
    return Extractor(identity, "text", encode, 1, 256 if device.type == "cuda" else 32)


HUBS: dict[str, Hub] = {
    hub.name: hub
    for hub in (
        Hub("timm", ("image",), "timm:resnet50.a1_in1k", "timm", ("timm",), _load_timm, _timm_body),
        Hub(
            "hf",
            ("image", "text"),
            "hf:facebook/dinov2-small",
            "transformers",
            ("transformers",),
            load_hf,
            _hf_body,
        ),
        Hub("st", ("text",), "st:all-mpnet-base-v2", "st", ("sentence-transformers",), _load_st),
        Hub(
            "open_clip",
            ("image", "text"),
            "open_clip:ViT-B-32/laion2b_s34b_b79k",
            "open_clip",
            ("open_clip_torch",),
            _load_open_clip,
        ),
    )
}
