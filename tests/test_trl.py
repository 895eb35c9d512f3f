"""L_q in TRL's SFTTrainer, against TRL itself: a tiny Llama, a tokenizer made here, no network."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("trl", reason="needs trl")
pytest.importorskip("datasets")

from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer

from tolerant.adapters.trl import LqSFTTrainer, held_out_log_probs

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*pin_memory.*no accelerator"),
]
WORDS = ["<pad>", "<eos>", *(f"q{i}" for i in range(8)), *(f"a{i}" for i in range(8)), "so", "then"]


def tokenizer() -> PreTrainedTokenizerFast:
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")


def model(seed: int = 0) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=1,
    )
    return LlamaForCausalLM(config)


def questions(n: int, wrong: float = 0.0) -> tuple[Dataset, np.ndarray]:
    """q3 is answered by a3, but for a share of answers to another question; and which those are."""
    rng = np.random.default_rng(0)
    asked = rng.integers(8, size=n)
    is_wrong = rng.random(n) < wrong
    answered = np.where(is_wrong, (asked + rng.integers(1, 8, n)) % 8, asked)
    filler = [" then" * int(rng.integers(0, 3)) for _ in range(n)]
    prompt = [f"q{q}{more} so" for q, more in zip(asked, filler, strict=True)]
    completion = [f" a{a} then a{a}" for a in answered]
    return Dataset.from_dict({"prompt": prompt, "completion": completion}), is_wrong


def config(folder: Any, **options: Any) -> SFTConfig:
    common: dict[str, Any] = {
        "max_steps": 3,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "report_to": "none",
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "activation_checkpointing": False,
        "max_grad_norm": 0.0,
    }
    return SFTConfig(output_dir=str(folder), **{**common, **options})


def trained(
    kind: type, folder: Any, peft: Any = None, more: dict[str, Any] | None = None, **options: Any
) -> tuple[dict[str, torch.Tensor], list[float]]:
    """The weights after three steps, and the losses that were logged."""
    rows, _ = questions(24)
    trainer = kind(
        model(),
        config(folder, **options),
        train_dataset=rows,
        processing_class=tokenizer(),
        peft_config=peft,
        **(more or {}),
    )
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        name: p.detach().clone() for name, p in trainer.model.named_parameters() if p.requires_grad
    }, losses


WAYS: dict[str, dict[str, Any]] = {
    "completions": {},
    "whole texts": {"completion_only_loss": False},
    "accumulated": {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3},
    "packed": {"packing": True, "max_length": 24},
    "padding-free": {"padding_free": True, "max_length": None},
}


@pytest.mark.parametrize(
    ("q", "loss_type", "way"),
    [*((0.0, "nll", way) for way in WAYS), (1.0, "dft", "accumulated"), (1.0, "dft", "packed")],
)
def test_both_ends_are_those_of_trl(q: float, loss_type: str, way: str, tmp_path: Any) -> None:
    theirs, their_losses = trained(SFTTrainer, tmp_path, loss_type=loss_type, **WAYS[way])
    ours, our_losses = trained(LqSFTTrainer, tmp_path, more={"q": q}, **WAYS[way])
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-4, atol=1e-6)
    if q == 0:
        assert our_losses == pytest.approx(their_losses, rel=1e-5)
    start = model().state_dict()
    assert any((start[name] - weight).abs().max() > 1e-3 for name, weight in ours.items())


def test_lora_trains_as_in_trl(tmp_path: Any) -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    theirs, _ = trained(SFTTrainer, tmp_path, lora, loss_type="dft")
    ours, _ = trained(LqSFTTrainer, tmp_path, lora, {"q": 1.0})
    assert ours
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, rtol=1e-4, atol=1e-6)


def test_between_the_ends_is_l_q(tmp_path: Any) -> None:
    """The first loss of a run is L_q of the tokens of the answers, by hand."""
    rows, _ = questions(24)
    trainer = LqSFTTrainer(
        model(), config(tmp_path), train_dataset=rows, processing_class=tokenizer(), q=0.5, k=0.05
    )
    batch = next(iter(trainer.get_train_dataloader()))
    with torch.no_grad():
        logits = model()(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits[:, :-1]
    labels = batch["labels"][:, 1:]
    p = logits.double().softmax(-1).gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)[labels != -100]
    want = torch.where(p > 0.05, (1 - p**0.5) / 0.5, (1 - 0.05**0.5) / 0.5).mean()
    assert (p > 0.05).any()
    assert (p <= 0.05).any()
    got = trainer.compute_loss(trainer.model, dict(batch))
    assert got.item() == pytest.approx(want.item(), rel=1e-5)


def test_the_logits_of_a_batch_are_never_whole(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, _ = questions(24)
    trainer = LqSFTTrainer(model(), config(tmp_path), train_dataset=rows, processing_class=tokenizer())
    monkeypatch.setattr(trainer.model.lm_head, "forward", lambda *_: pytest.fail("all logits at once"))
    trainer.train()
    assert trainer.state.global_step == 3


def test_wrong_answers_are_the_least_believed(tmp_path: Any) -> None:
    rows, wrong = questions(160, wrong=0.2)

    def make(train: Dataset, held_out: Dataset) -> LqSFTTrainer:
        args = config(tmp_path, max_steps=-1, num_train_epochs=6, per_device_train_batch_size=16)
        return LqSFTTrainer(
            model(), args, train_dataset=train, eval_dataset=held_out, processing_class=tokenizer(), q=0.5
        )

    log_p = held_out_log_probs(make, rows, folds=2)
    assert log_p.shape == (160,)
    suspects = np.argsort(log_p)[: wrong.sum()]
    assert wrong[suspects].mean() > 0.9


def test_answers_are_scored_row_by_row(tmp_path: Any) -> None:
    rows, _ = questions(7)
    trainer = LqSFTTrainer(
        model(),
        config(tmp_path, padding_free=True, max_length=None, per_device_eval_batch_size=3),
        train_dataset=rows,
        eval_dataset=rows,
        processing_class=tokenizer(),
    )
    scores = trainer.answer_log_probs()
    words = tokenizer()
    for row, score in zip(rows, scores, strict=True):
        prompt = words(row["prompt"])["input_ids"]
        ids = torch.tensor([prompt + words(row["completion"] + " <eos>")["input_ids"]])
        with torch.no_grad():
            log_p = model()(input_ids=ids).logits[0, :-1].log_softmax(-1).gather(1, ids[0, 1:, None])
        assert score == pytest.approx(float(log_p[len(prompt) - 1 :].mean()), rel=1e-4)
    assert trainer.model.training


def test_what_cannot_be_is_refused(tmp_path: Any) -> None:
    rows, _ = questions(8)
    given: dict[str, Any] = {"train_dataset": rows, "processing_class": tokenizer()}
    with pytest.raises(ValueError, match="q must be"):
        LqSFTTrainer(model(), config(tmp_path), q=3.0, **given)
    with pytest.raises(ValueError, match=r"loss_type must be 'nll'.*got 'dft'"):
        LqSFTTrainer(model(), config(tmp_path, loss_type="dft"), **given)
    with pytest.raises(ValueError, match="rows must be one data set"):
        LqSFTTrainer(model(), config(tmp_path), **given).answer_log_probs()
    packed = config(tmp_path, packing=True, max_length=24)
    trainer = LqSFTTrainer(model(), packed, eval_dataset=rows, **given)
    with pytest.raises(ValueError, match="rows must not be packed"):
        trainer.answer_log_probs()
    with pytest.raises(ValueError, match="folds must be from 2"):
        held_out_log_probs(lambda *_: pytest.fail("not reached"), rows, folds=1)
