"""Accelerate on one machine or many: `accelerate launch examples/accelerate_loop.py`.

Ranks score their share of the rows; `Pruner.update` brings all of them to the same decision.
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tolerant import LqLoss, Pruner, PruneSchedule, data, noise

digits = data.load("digits")
drawn = noise.corrupt(digits.true_labels, noise.symmetric(10, 0.4), seed=0)
x, y = torch.tensor(digits.inputs).flatten(1) / 255, torch.tensor(drawn.given_labels)

accelerator = Accelerator()
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=2e-3))
loss_fn = LqLoss(q=0.7)
schedule = PruneSchedule(start_epoch=15, every=5, k=0.3)
pruner = Pruner(len(y), y, k=schedule.k)
rank, world = accelerator.process_index, accelerator.num_processes
order = torch.Generator().manual_seed(0)  # alike on every rank
kept_rows = pruner.sampler(generator=order, num_replicas=world, rank=rank)  # shards by itself
loader = DataLoader(TensorDataset(x, y), batch_size=64 // world, sampler=kept_rows)
for epoch in range(25):
    if schedule.due(epoch):
        mine = torch.arange(rank, len(y), world)
        with torch.no_grad():
            probabilities = model(x[mine].to(accelerator.device)).softmax(1).cpu()
        pruner.update(mine, probabilities[torch.arange(len(mine)), y[mine]])
    for inputs, labels in loader:
        optimizer.zero_grad()
        logits = model(inputs.to(accelerator.device))
        accelerator.backward(loss_fn(logits, labels.to(accelerator.device)))
        optimizer.step()
accelerator.print(f"{pruner.num_kept} of {len(y)} rows kept")
