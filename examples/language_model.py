"""A language model whose head and L_q loss are one: the logits of the whole batch never exist."""

import torch
from torch import nn

from tolerant import LinearLqLoss

torch.manual_seed(0)
VOCABULARY, WIDTH, LENGTH = 2000, 64, 32


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.body = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens):
        return self.body(self.embed(tokens))[0]  # hidden states; `head` is left to the loss


model = Model()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
loss_fn = LinearLqLoss(q=0.4)  # q = 0: cross entropy; q = 1: the gradient of dynamic fine-tuning
losses = []
for _ in range(60):
    start = torch.randint(0, VOCABULARY, (16, 1))
    tokens = (start + torch.arange(LENGTH + 1)) % VOCABULARY  # counting, with one token in ten wrong
    wrong = torch.rand(tokens.shape) < 0.1
    tokens = torch.where(wrong, torch.randint(0, VOCABULARY, tokens.shape), tokens)
    hidden = model(tokens[:, :-1])
    loss = loss_fn(hidden, model.head.weight, tokens[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} at first, {losses[-1]:.3f} at last")
