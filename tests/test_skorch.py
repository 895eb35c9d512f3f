"""skorch: a loss of ours as `criterion`, its numbers as `criterion__q`."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from skorch import NeuralNetClassifier
from torch import nn
from train_helpers import table

from tolerant import ForwardCorrected, LqLoss, TruncatedLqLoss, noise


def net(criterion, **options) -> NeuralNetClassifier:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4))
    common = {"lr": 0.5, "max_epochs": 15, "batch_size": 32, "verbose": 0}
    common |= {"predict_nonlinearity": nn.Softmax(dim=-1)}
    return NeuralNetClassifier(module, criterion=criterion, **common, **options)


@pytest.mark.parametrize(
    ("criterion", "options"),
    [
        (LqLoss, {"criterion__q": 0.7}),
        (TruncatedLqLoss, {"criterion__q": 0.3, "criterion__k": 0.01}),
        (ForwardCorrected(LqLoss(q=0.5), torch.tensor(noise.symmetric(4, 0.3))), {}),
    ],
    ids=["lq", "truncated", "forward"],
)
def test_criterion(criterion, options):
    rows = table(600)
    classifier = net(criterion, **options).fit(rows.inputs, rows.given_labels)
    predicted = classifier.predict(rows.inputs)
    assert (predicted == rows.true_labels).mean() > 0.9
    probs = classifier.predict_proba(rows.inputs)
    np.testing.assert_allclose(probs.sum(axis=1), 1, atol=1e-5)
    if options:
        assert classifier.criterion_.q == options["criterion__q"]
    losses = [row["train_loss"] for row in classifier.history]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


def test_the_training_loss_is_ours():
    rows = table(64)
    classifier = net(LqLoss, criterion__q=0.7, train_split=None)
    classifier.initialize()
    loss = classifier.get_loss(classifier.module_(torch.from_numpy(rows.inputs)), rows.given_labels)
    logits = classifier.module_(torch.from_numpy(rows.inputs))
    torch.testing.assert_close(loss, LqLoss(q=0.7)(logits, torch.from_numpy(rows.given_labels)))
