"""PyTorch modules, exported programs and allocator snapshots."""
