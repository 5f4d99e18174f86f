"""List the largest tensors of a PyTorch memory snapshot or a model: python torch_snapshot.py FILE. Install: base."""

import sys

import tmmu

plan = tmmu.plan(sys.argv[1])
largest = sorted(zip(plan.size.tolist(), plan.tensor_ids, strict=True), reverse=True)[:5]
print(plan.peak_live_bytes, plan.extent_bytes)
for size, name in largest:
    print(size, name)
