"""A language model fine-tuned with TRL on answers of which one in five is wrong, and which those are."""

import tempfile

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig

from tolerant.adapters.trl import LqSFTTrainer, held_out_log_probs

rng = np.random.default_rng(0)
asked, wrong = rng.integers(8, size=240), rng.random(240) < 0.2
answered = np.where(wrong, (asked + rng.integers(1, 8, 240)) % 8, asked)  # "q3" is answered by "a3"
rows = Dataset.from_dict(
    {"prompt": [f"q{q} ?" for q in asked], "completion": [f" well , a{a}" for a in answered]}
)

# Yours: a model and a tokenizer from the hub, by name.
words = ["<eos>", "?", "well", ",", *(f"{kind}{i}" for kind in "qa" for i in range(8))]
tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="?"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<eos>", eos_token="<eos>")
layers = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
args = {"num_train_epochs": 6, "per_device_train_batch_size": 16, "learning_rate": 1e-2, "use_cpu": True}
quiet = {"report_to": "none", "save_strategy": "no", "disable_tqdm": True, "logging_strategy": "no"}


def make_trainer(train, held_out):
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(words), **layers))
    config = SFTConfig(tempfile.mkdtemp(), bf16=False, **args, **quiet)
    return LqSFTTrainer(model, config, None, train, held_out, tokenizer, q=0.5)  # was SFTTrainer(...)


log_p = held_out_log_probs(make_trainer, rows, folds=3)
least = np.argsort(log_p)[: wrong.sum()]
print(f"{wrong[least].mean():.2f} of the {len(least)} answers that are believed least are wrong")
