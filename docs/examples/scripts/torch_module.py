"""Plan a PyTorch module. Install: base and the extra torch."""

import torch

import tmmu

module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
plan = tmmu.plan(module, example_inputs=(torch.rand(16, 64),), planner="auto")
print(plan.extent_bytes, plan.lower_bound_bytes)
