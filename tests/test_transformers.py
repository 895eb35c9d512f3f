"""Losses and pruning in the Transformers Trainer: real library, random tiny models, no network."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertForTokenClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from tolerant import CCELoss, LqLoss, NCELoss, PruneSchedule, SumLoss
from tolerant.adapters.transformers import FILE, PruneRows, TrainerLoss, _higher_is_better
from tolerant.train import Guards

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator"),
]
PAD = 0


def tiny(kind: type, vocab_size: int, num_labels: int = 3, size: int = 32) -> Any:
    torch.manual_seed(0)
    if kind.__name__.startswith("Bert"):
        config: Any = BertConfig(
            vocab_size=vocab_size,
            hidden_size=size,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=2 * size,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    elif kind is LlamaForCausalLM:
        config = LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=size,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=2,
            intermediate_size=2 * size,
        )
    else:
        config = GPT2Config(
            vocab_size=vocab_size,
            n_embd=size,
            n_layer=1,
            n_head=2,
            n_positions=64,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            pad_token_id=PAD,
            bos_token_id=1,
            eos_token_id=1,
        )
    config.num_labels = num_labels
    return kind(config)


def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
    ids = [torch.tensor(row["input_ids"]) for row in rows]
    labels = [torch.tensor(row["labels"]) for row in rows]
    batch = {
        "input_ids": pad_sequence(ids, batch_first=True, padding_value=PAD),
        "attention_mask": pad_sequence([torch.ones_like(i) for i in ids], batch_first=True),
    }
    tokens = labels[0].ndim > 0
    batch["labels"] = pad_sequence(labels, True, -100) if tokens else torch.stack(labels)
    return batch


def trainer(model: Any, rows: Any, folder: Any, *callbacks: TrainerCallback, **options: Any) -> Trainer:
    extra = {name: options.pop(name) for name in ("eval_dataset", "compute_metrics") if name in options}
    loss = options.pop("loss", None) or TrainerLoss(LqLoss(q=0.7))
    defaults = {
        "per_device_train_batch_size": 8,
        "report_to": "none",
        "use_cpu": True,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_strategy": "no",
        "max_grad_norm": 0.0,
        "seed": 0,
    }
    args = TrainingArguments(str(folder), **defaults | options)
    return Trainer(
        model,
        args,
        data_collator=collate,
        train_dataset=rows,
        compute_loss_func=loss,
        callbacks=list(callbacks),
        **extra,
    )


class Gradients(TrainerCallback):
    """The gradients of the first optimiser step."""

    def __init__(self) -> None:
        self.found: dict[str, torch.Tensor] = {}

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        if not self.found:
            grads = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
            self.found = {name: grad.clone() for name, grad in grads.items()}


def ragged_rows(num_rows: int, tokens: bool, kind: type | None = None) -> list[dict[str, Any]]:
    """Rows of 3 to 20 tokens, some of them without a label; for GPT-2 the first ones (see TrainerLoss)."""
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(num_rows):
        ids = rng.integers(2, 40, rng.integers(3, 21))
        labels = np.where(rng.random(len(ids)) < 0.3, -100, ids % 3)
        labels[0] = -100 if kind is GPT2LMHeadModel else labels[0]
        rows.append({"input_ids": ids.tolist(), "labels": labels.tolist() if tokens else int(ids[0] % 3)})
    return rows


TASKS = {
    "sequence": (BertForSequenceClassification, False),
    "token": (BertForTokenClassification, True),
    "causal-gpt": (GPT2LMHeadModel, True),
    "causal-llama": (LlamaForCausalLM, True),
}


# --- the loss ------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", TASKS)
def test_accumulated_gradients_are_those_of_the_whole_batch(task, tmp_path):
    kind, tokens = TASKS[task]
    rows = ragged_rows(8, tokens, kind)

    def gradients(size: int, steps: int, loss: Any = None) -> dict[str, torch.Tensor]:
        seen = Gradients()
        options = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps, "max_steps": 1}
        trainer(tiny(kind, 40), rows, tmp_path, seen, loss=loss, **options).train()
        return seen.found

    whole, parts = gradients(8, 1), gradients(2, 4)
    assert whole.keys() == parts.keys()
    for name, grad in whole.items():
        torch.testing.assert_close(parts[name], grad, rtol=1e-4, atol=1e-7)

    batch, model = collate(rows), tiny(kind, 40)
    logits = model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
    labels = batch["labels"]
    if task.startswith("causal"):
        logits, labels = logits[:, :-1], labels[:, 1:]
    LqLoss(q=0.7)(logits.flatten(0, -2), labels.flatten()).backward()
    assert whole.keys() == {n for n, p in model.named_parameters() if p.grad is not None}
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(whole[name], parameter.grad, rtol=1e-4, atol=1e-7)

    if tokens:  # rows differ in their number of labels, so a mean of means is another number
        naive = TrainerLoss(LqLoss(q=0.7))
        mean = gradients(2, 4, lambda outputs, labels, num_items_in_batch: naive(outputs, labels) / 4)
        assert any((mean[name] - grad).norm() > 0.02 * grad.norm() for name, grad in whole.items())


@pytest.mark.parametrize("task", TASKS)
def test_cross_entropy_is_the_models_own_loss(task):
    kind, tokens = TASKS[task]
    batch, model = collate(ragged_rows(8, tokens)), tiny(kind, 40)
    outputs = model(**batch)
    torch.testing.assert_close(TrainerLoss(CCELoss())(outputs, batch["labels"]), outputs.loss)


def test_composed_losses_and_weights():
    outputs, labels = {"logits": torch.randn(4, 3)}, torch.tensor([0, 2, -100, 1])
    loss = TrainerLoss(SumLoss(NCELoss(weight=torch.tensor([1.0, 2.0, 3.0])), LqLoss()))
    expected = SumLoss(
        NCELoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="sum"), LqLoss(reduction="sum")
    )
    torch.testing.assert_close(loss(outputs, labels, 10), expected(outputs["logits"], labels) / 10)
    assert loss(outputs, torch.full((4,), -100), torch.tensor(0)) == 0


def test_shift_can_be_said_where_the_outputs_do_not_tell():
    """A plain dict of logits, from a model that Transformers does not know to be causal."""
    logits, labels = torch.randn(2, 5, 7), torch.randint(7, (2, 5))
    expected = CCELoss()(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
    torch.testing.assert_close(TrainerLoss(CCELoss(), shift=True)({"logits": logits}, labels), expected)
    assert not torch.isclose(TrainerLoss(CCELoss())({"logits": logits}, labels), expected)


def test_loss_refuses():
    with pytest.raises(ValueError, match="ignore_index must be -100"):
        TrainerLoss(LqLoss(ignore_index=0))
    with pytest.raises(ValueError, match="must have a reduction"):
        TrainerLoss(torch.nn.Linear(2, 2))
    loss = TrainerLoss(LqLoss())
    with pytest.raises(ValueError, match=r"labels must have the logits' shape without classes, \(4, 5\)"):
        loss({"logits": torch.zeros(4, 5, 3)}, torch.zeros(4, dtype=torch.long))
    with pytest.raises(ValueError, match="one process must drive one GPU"):
        loss({"logits": torch.zeros(2, 3)}, torch.zeros(2, dtype=torch.long), torch.ones(2, 1))


# --- pruning -------------------------------------------------------------------------------------


def noisy_rows(num_rows: int = 160, noise_rate: float = 0.25, seed: int = 0) -> tuple[list[dict], np.ndarray]:
    """The class is the most frequent of three words."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 3, num_rows)
    wrong = rng.random(num_rows) < noise_rate
    given = np.where(wrong, (true + rng.integers(1, 3, num_rows)) % 3, true)
    rows = []
    for label, topic in zip(given, true, strict=True):
        ids = np.where(rng.random(rng.integers(4, 9)) < 0.7, 2 + topic, rng.integers(5, 20))
        rows.append({"input_ids": ids.tolist(), "labels": int(label)})
    return rows, wrong


def accuracy(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


SCHEDULE = PruneSchedule(start_epoch=2, every=2, k=0.4)
EVERY = {"eval_strategy": "epoch", "metric_for_best_model": "accuracy", "learning_rate": 3e-3}


class Watch(TrainerCallback):
    """The weights of every epoch; those after epoch 1 are wrecked once it has been evaluated."""

    def __init__(self) -> None:
        self.weights: list[dict[str, torch.Tensor]] = []
        self.accuracy: list[float] = []
        self.went_on_from: torch.Tensor | None = None

    def on_evaluate(self, args, state, control, metrics, model, **kwargs):
        self.weights.append({n: t.clone() for n, t in model.state_dict().items()})
        self.accuracy.append(metrics["eval_accuracy"])
        if state.epoch == 2:
            torch.nn.init.zeros_(model.classifier.weight)

    def on_step_begin(self, args, state, control, model, **kwargs):
        if state.epoch == 2:
            self.went_on_from = model.classifier.weight.detach().clone()


def fit(
    folder: Any, epochs: int, resume: str | None = None, dropout: float = 0.0, **options: Any
) -> tuple[Any, PruneRows, Watch]:
    rows, _ = noisy_rows()
    model, prune, watch = tiny(BertForSequenceClassification, 20), PruneRows(rows, SCHEDULE), Watch()
    model.dropout.p = dropout
    held_out = noisy_rows(60, seed=1)[0]
    options = {"num_train_epochs": epochs, "compute_metrics": accuracy, "eval_dataset": held_out} | options
    run = trainer(model, prune.dataset, folder, prune, watch, **EVERY | options)
    run.train(resume_from_checkpoint=resume)
    return model, prune, watch


def test_the_best_model_prunes_the_wrong_labels(tmp_path):
    model, prune, watch = fit(tmp_path, 4)
    assert not watch.went_on_from.any()
    rows, wrong = noisy_rows()
    kept = prune.kept.numpy()
    assert wrong[~kept].mean() > 0.8
    assert wrong[kept].mean() < 0.25 * wrong.mean()
    assert [row["labels"] for row in prune.dataset] == [
        row["labels"] if keep else -100 for row, keep in zip(rows, kept, strict=True)
    ]
    best = int(np.argmax(watch.accuracy[:2]))  # the last round came before epoch 2
    model.load_state_dict(watch.weights[best])
    batch = collate(rows)
    labels = batch.pop("labels")
    p_y = model.eval()(**batch).logits.softmax(1)[torch.arange(len(rows)), labels]
    torch.testing.assert_close(prune.pruner.p_y, p_y.detach(), rtol=1e-4, atol=1e-6)


def test_a_collator_may_give_more_than_tensors(tmp_path):
    rows, _ = noisy_rows()
    prune = PruneRows(rows, PruneSchedule(start_epoch=0, every=1, k=0.3))
    run = trainer(tiny(BertForSequenceClassification, 20), prune.dataset, tmp_path, prune, num_train_epochs=1)
    run.data_collator = lambda rows: {**collate(rows), "output_attentions": False, "position_ids": None}
    run.train()
    assert not prune.pruner.p_y.isnan().any()


def test_a_weak_model_prunes_nothing_unless_told_to(tmp_path):
    """Untrained, it gives every label about a third, most of them less than k."""
    rows, _ = noisy_rows()
    for guards in (Guards(), None):
        prune = PruneRows(rows, PruneSchedule(start_epoch=0, every=5, k=0.338), guards=guards)
        model = tiny(BertForSequenceClassification, 20)
        run = trainer(model, prune.dataset, tmp_path, prune, num_train_epochs=1)
        if guards is None:
            run.train()
            assert prune.kept.float().mean() < 0.5
        else:
            with pytest.warns(UserWarning, match=r"before epoch 0 is left out.*at_most=0\.5.*guards=None"):
                run.train()
            assert prune.kept.all()


def test_a_callback_used_again_starts_anew(tmp_path):
    """As in a search over hyper-parameters: a trial must not be pruned by the model of the last one."""
    rows, _ = noisy_rows()
    prune, found = PruneRows(rows, SCHEDULE), []
    for _ in range(2):
        model = tiny(BertForSequenceClassification, 20)
        options = {
            "num_train_epochs": 3,
            "compute_metrics": accuracy,
            "eval_dataset": noisy_rows(60, seed=1)[0],
        }
        trainer(model, prune.dataset, tmp_path, prune, **EVERY | options).train()
        found.append((model.classifier.weight.detach().clone(), prune.kept, prune.best_value))
    assert not prune.kept.all()
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][2] == found[1][2]


def test_pruned_rows_have_no_gradient(tmp_path):
    """A step on all rows with some pruned is a step on the others alone."""
    rows, _ = noisy_rows(8)
    kept = torch.tensor([True, False, True, True, False, True, True, False])

    def gradients(dataset: Any, size: int) -> dict[str, torch.Tensor]:
        seen = Gradients()
        model = tiny(BertForSequenceClassification, 20)
        trainer(model, dataset, tmp_path, seen, per_device_train_batch_size=size, max_steps=1).train()
        return seen.found

    prune = PruneRows(rows, SCHEDULE)
    prune._kept.copy_(kept)
    pruned, alone = (
        gradients(prune.dataset, 8),
        gradients([r for r, k in zip(rows, kept, strict=True) if k], 5),
    )
    for name, grad in alone.items():
        torch.testing.assert_close(pruned[name], grad, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(
    ("strategy", "steps", "evaluate"),
    [("epoch", 40, "epoch"), ("epoch", 60, "epoch"), ("steps", 50, "no")],
)
def test_resumed_is_as_if_never_stopped(tmp_path, strategy, steps, evaluate):
    """20 steps an epoch: at step 40 a round is due, after step 50 it is over and must not be repeated."""
    options = {
        "save_strategy": strategy,
        "save_steps": steps,
        "lr_scheduler_type": "constant",
        "dropout": 0.2,
    }
    options["eval_strategy"] = evaluate
    whole, whole_prune, _ = fit(tmp_path / "whole", 4, **options)
    folder = tmp_path / "whole" / f"checkpoint-{steps}"
    resumed, prune, _ = fit(tmp_path / "whole", 4, resume=str(folder), **options)
    assert not prune.kept.all()
    torch.testing.assert_close(prune.pruner.p_y, whole_prune.pruner.p_y, rtol=0, atol=0)
    assert torch.equal(prune.kept, whole_prune.kept)
    assert prune.best_value == whole_prune.best_value
    for name, tensor in whole.state_dict().items():
        assert torch.equal(resumed.state_dict()[name], tensor), name
    (folder / FILE).unlink()
    with pytest.raises(ValueError, match="saved with PruneRows"):
        fit(tmp_path / "whole", 4, resume=str(folder), **options)


def test_token_rows_are_scored_by_their_geometric_mean(tmp_path):
    rows = ragged_rows(12, tokens=True)
    rows[3]["labels"] = [-100] * len(rows[3]["labels"])
    model, prune = tiny(GPT2LMHeadModel, 40), PruneRows(rows, PruneSchedule(0, 1, 0.025), guards=None)
    for part in model.train().modules():
        if isinstance(part, torch.nn.Dropout):
            part.p = 0.5  # scores in training mode would be others
    before = {n: t.clone() for n, t in model.state_dict().items()}
    trainer(model, prune.dataset, tmp_path, prune, max_steps=1, per_device_eval_batch_size=4).train()
    model.load_state_dict(before)
    model.eval()
    for index, row in enumerate(rows):
        logits = model(torch.tensor([row["input_ids"]])).logits[0, :-1]
        nll = F.cross_entropy(logits, torch.tensor(row["labels"][1:]))
        torch.testing.assert_close(
            prune.pruner.p_y[index], (-nll).exp().detach(), rtol=1e-4, atol=1e-7, equal_nan=True
        )
    assert prune.kept[3]
    assert 0 < prune.kept.sum() < 12
    pruned = int((~prune.kept).nonzero()[0])
    assert set(prune.dataset[pruned]["labels"]) == {-100}


def test_pruning_refuses(tmp_path):
    rows, _ = noisy_rows(8)
    with pytest.raises(ValueError, match="rows must hold their labels under 'label'; got input_ids, labels"):
        PruneRows(rows, SCHEDULE, label="label")
    hub = [{"input_ids": row["input_ids"], "label": row["labels"]} for row in rows]
    with pytest.raises(ValueError, match=r"under 'labels'; got input_ids, label\. Pass label='label'"):
        PruneRows(hub, SCHEDULE)
    with pytest.raises(ValueError, match=r"got input_ids\. A collator that makes labels"):
        PruneRows([{"input_ids": row["input_ids"]} for row in rows], SCHEDULE)
    with pytest.raises(ValueError, match=r"rows must have a length and positions.*; got generator"):
        PruneRows((row for row in rows), SCHEDULE)
    prune = PruneRows(rows, SCHEDULE)
    with pytest.raises(ValueError, match="train_dataset must be the `dataset`"):
        trainer(tiny(BertForSequenceClassification, 20), rows, tmp_path, prune, max_steps=1).train()


class Wreck(TrainerCallback):
    def on_epoch_end(self, args, state, control, model, **kwargs):
        torch.nn.init.constant_(model.classifier.bias, float("nan"))


def test_a_model_that_has_diverged_does_not_prune(tmp_path):
    """NaN is not taken for a row without a label."""
    rows, _ = noisy_rows(8)
    prune = PruneRows(rows, PruneSchedule(1, 1, 0.4))
    with pytest.raises(ValueError, match="the model has diverged"):
        trainer(
            tiny(BertForSequenceClassification, 20),
            prune.dataset,
            tmp_path,
            prune,
            Wreck(),
            num_train_epochs=2,
        ).train()


def test_scoring_refuses_a_label_that_is_no_class(tmp_path):
    prune = PruneRows([{"input_ids": [2, 3], "labels": y} for y in (0, -1)], PruneSchedule(0, 1, 0.4))
    with pytest.raises(ValueError, match=r"labels must be in 0..2; got -1"):
        trainer(tiny(BertForSequenceClassification, 20), prune.dataset, tmp_path, prune).train()


@pytest.mark.parametrize("metric", [None, "b_loss"])
def test_several_evaluation_sets_without_a_choice_are_pointed_out(metric, tmp_path):
    prune, held_out = PruneRows(noisy_rows(16)[0], PruneSchedule(1, 1, 1e-6)), noisy_rows(8, seed=1)[0]
    options = {"eval_strategy": "epoch", "metric_for_best_model": metric, "num_train_epochs": 2}
    run = trainer(
        tiny(BertForSequenceClassification, 20),
        prune.dataset,
        tmp_path,
        prune,
        eval_dataset={"a": held_out, "b": held_out},
        **options,
    )
    if metric is None:
        with pytest.warns(
            UserWarning, match=r"'eval_loss' .they had eval_a_loss, eval_b_loss., so the current"
        ):
            run.train()
    else:  # warnings are errors
        run.train()
    assert (prune.best_value is None) == (metric is None)


# --- TREC with the labels of voting rules ---------------------------------------------------------


def trec(data_folder: Any) -> tuple[list[dict], np.ndarray, list[dict], list[dict], int]:
    """Questions of 6 classes; the given label is the rules' majority, of equals the one rarer in votes."""
    data = json.loads((data_folder / "text" / "trec.json").read_text())
    votes_cast = np.bincount([vote for votes in data["train"]["votes"] for _, vote in votes], minlength=6)
    vocabulary: dict[str, int] = {}

    def encode(part: str, by_votes: bool, most: int) -> tuple[list[dict], np.ndarray]:
        rows, true = [], []
        for text, label, votes in zip(*(data[part][n] for n in ("text", "y_clean", "votes")), strict=True):
            if votes and len(rows) < most:
                counts = np.bincount([vote for _, vote in votes], minlength=6)
                given = int(np.argmax(counts - 1e-6 * votes_cast)) if by_votes else label
                ids = [2 + vocabulary.setdefault(word, len(vocabulary)) for word in text.split()[:20]]
                rows.append({"input_ids": ids, "labels": given})
                true.append(label)
        return rows, np.array([row["labels"] for row in rows]) != np.array(true)

    train, wrong = encode("train", True, 1600)
    validation, _ = encode("valid", True, 300)
    test, _ = encode("test", False, 500)
    return train, wrong, validation, test, len(vocabulary) + 2


@pytest.mark.data
@pytest.mark.parametrize("kind", [BertForSequenceClassification, GPT2ForSequenceClassification])
def test_trec_with_rule_votes(kind, data_folder, tmp_path):
    """The rules err alike on like questions: a model learns them, and pruning does not find their errors."""
    train, wrong, validation, test, vocab_size = trec(data_folder)
    assert 0.2 < wrong.mean() < 0.5
    prune = PruneRows(train, PruneSchedule(start_epoch=3, every=1, k=0.2))
    model = tiny(kind, vocab_size, num_labels=6)
    options = EVERY | {"num_train_epochs": 4, "per_device_train_batch_size": 32, "learning_rate": 5e-3}
    options |= {"eval_dataset": validation, "compute_metrics": accuracy, "loss": TrainerLoss(LqLoss(q=0.3))}
    run = trainer(model, prune.dataset, tmp_path, prune, **options)
    run.train()
    assert prune.best_value > 0.8  # of the given labels
    np.testing.assert_array_equal(prune.kept, prune.pruner.p_y.numpy() > 0.2)
    assert 0.8 < prune.kept.double().mean() < 1
    assert wrong[prune.kept.numpy()].mean() == pytest.approx(wrong.mean(), abs=0.02)
    most_common = np.bincount([row["labels"] for row in test]).max() / len(test)
    assert run.evaluate(test)["eval_accuracy"] > most_common + 0.05


@pytest.mark.parametrize(
    ("metric", "greater", "mode"),
    [(None, None, "min"), ("eval_loss", None, "min"), ("accuracy", None, "max"), ("accuracy", False, "min")],
)
def test_the_best_epoch_is_that_of_the_least_loss_or_of_the_highest_other_metric(metric, greater, mode):
    """As Trainer itself decides, unless it is told which is better."""
    told = SimpleNamespace(metric_for_best_model=metric, greater_is_better=greater)
    assert ("max" if _higher_is_better(told) else "min") == mode
