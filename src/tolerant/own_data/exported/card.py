"""What a model is, in Markdown beside it: what it was trained on, and how far its labels could be trusted."""

from __future__ import annotations

from tolerant.data.dataset import NoisyDataset
from tolerant.markdown import markdown_table, plain
from tolerant.own_data.classifiers.cards import CLASSIFIERS
from tolerant.own_data.classifiers.committee import Committee
from tolerant.own_data.run_folder import SavedRun
from tolerant.review.charts import rate_in_words


def model_card(run: SavedRun, dataset: NoisyDataset, file: str) -> str:
    """The model card of an exported model, in Markdown; ``dataset``: what the run was trained on."""
    spec, encoder, suspects = run.spec, run.encoder, run.suspects(dataset)
    rate, names = suspects.noise_rate, encoder.class_names
    shape = ", ".join(map(str, encoder.picture_shape or encoder.shape))
    rows = "pictures, uint8" if encoder.kind == "image" else "encoded columns, float32"
    facts = {
        "Trained on": f"{len(dataset):,} rows of {run.title}",
        "Classes": ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else ""),
        "Labels estimated to be wrong": "; ".join(rate_in_words(rate)),
        "Suspects": f"{len(suspects):,} rows; a person decided {suspects.num_reviewed:,}",
        **_facts_of_model(run),
        "Rows kept": "all" if suspects.kept_share is None else f"{suspects.kept_share:.1%}",
        "Input": f"`rows`: {rows} (N, {shape}), any N",
        "Output": f"`probabilities`: float32 (N, {len(names)}), in the order of `class_names`",
    }
    if encoder.encoder is not None:
        facts["Columns"] = ", ".join(encoder.encoder.feature_names)
    meant = "labels as they were given, mistakes included, and not calibrated"
    if spec.get("doubt_of_true"):
        meant = "true labels, as far as a noise model could tell them from those given"
    lines = [
        f"# {plain(run.title)}",
        "",
        f"A classifier trained by tolerant {spec['version']} on labels that are partly wrong.",
        "",
        markdown_table(["", ""], [[name, plain(fact)] for name, fact in facts.items()], "ll"),
        "",
        *("## Use", "", "```python", *_use(file), "```", ""),
        *("## Limits", ""),
        f"The probabilities are those of {meant}. No true label",
        "was seen: the share of wrong ones is an estimate from the model's own doubts, and leaves out",
        "mistakes that follow a rule.",
        "",
    ]
    return "\n".join(lines)


def _facts_of_model(run: SavedRun) -> dict[str, str]:
    spec, extractor = run.spec, run.encoder.extractor
    inside = f"; the features are of {extractor.name}, which is inside" if extractor else ""
    if isinstance(run.model, Committee):
        return {"Model": "; ".join(CLASSIFIERS[name].about for name in run.model.fitted) + inside}
    loss = [spec["loss"], *(f"{name} = {value}" for name, value in spec["loss_args"].items())]
    return {
        "Network": f"{spec['model']}{inside}",
        "Loss": ", ".join(loss),
        "Pruning": "none" if spec["k"] is None else f"rows with p at most k = {spec['k']} were left out",
    }


def _use(file: str) -> list[str]:
    if file.endswith(".onnx"):
        return [
            "import json, onnxruntime",
            "",
            f'session = onnxruntime.InferenceSession("{file}")',
            'class_names = json.loads(session.get_modelmeta().custom_metadata_map["class_names"])',
            'probabilities = session.run(None, {"rows": rows})[0]  # rows: a numpy array',
        ]
    return [
        "import json, torch",
        "",
        'about = {"tolerant.json": ""}',
        f'model = torch.export.load("{file}", extra_files=about).module()',
        'class_names = json.loads(json.loads(about["tolerant.json"])["class_names"])',
        "probabilities = model(rows)  # rows: a tensor",
    ]
