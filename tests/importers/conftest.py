"""PyTorch is an optional extra of 200 MB: what needs it is collected where it is installed, and only there.

What its importer gives is checked everywhere on the samples that it made (``test_traced_samples.py``).
"""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_torch.py"]
