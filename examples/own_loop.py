"""Your own training loop with L_q and pruning: the lines with a comment are what changes."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tolerant import LqLoss, PruneSchedule, data, noise
from tolerant.train import Alternation

digits = data.load("digits")
drawn = noise.corrupt(digits.true_labels, noise.symmetric(10, 0.4), seed=0)  # yours come with noise
x, y = torch.tensor(digits.inputs).flatten(1) / 255, torch.tensor(drawn.given_labels)
train_index, held_out = data.split_validation(len(y), 0.1)
x_val, y_val = x[held_out], y[held_out]
x, y = x[train_index], y[train_index]

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
loss_fn = LqLoss(q=0.7)  # instead of nn.CrossEntropyLoss()
rounds = Alternation(PruneSchedule(start_epoch=15, every=5, k=0.3), len(y), y)  # which rows train
loader = DataLoader(TensorDataset(x, y), batch_size=64, sampler=rounds.pruner.sampler())  # those rows
for epoch in range(30):
    if rounds.due(epoch):
        with rounds.best_model(model), torch.no_grad():  # the best so far by noisy validation
            p_y = model(x).softmax(1)[torch.arange(len(y)), y]
        rounds.decide(range(len(y)), p_y)
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss_fn(model(inputs), labels).backward()
        optimizer.step()
    accuracy = float((model(x_val).argmax(1) == y_val).float().mean())
    rounds.observe(epoch, accuracy, model.state_dict())  # remembers the best
model.load_state_dict(rounds.best_weights)
test = data.load("digits", split="test")
right = model(torch.tensor(test.inputs).flatten(1) / 255).argmax(1) == torch.tensor(test.true_labels)
print(f"{rounds.pruner.num_kept} of {len(y)} rows kept, test accuracy {right.float().mean():.3f}")
