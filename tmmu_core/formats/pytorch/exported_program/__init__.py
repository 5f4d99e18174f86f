"""Saved programs of torch.export (`.pt2`), read without PyTorch."""
