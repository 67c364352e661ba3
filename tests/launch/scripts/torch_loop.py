"""PyTorch alone."""

import torch

torch.manual_seed(16)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(5):
    optimizer.zero_grad()
    loss = model(torch.ones(8, 4)).square().mean()
    loss.backward()
    optimizer.step()
print(float(loss.detach()))
