"""Write programs with ExecuTorch's own plans, for ``tmmu measure``: ``python -m benchmarks.executorch FOLDER``.

Run this in a separate environment, because ExecuTorch pins many versions (``pip install executorch==1.5.1
torch==2.14.1 torchvision==0.29.1 timm``). It uses no module of this project. Weights are random, because a plan does
not depend on them.
"""

import sys
from pathlib import Path


def main() -> None:
    """Write each program into the folder of the command line."""
    import timm
    import torch
    import torchvision
    from executorch.exir import to_edge

    folder = Path(sys.argv[1])
    models = {
        "mobilenet_v3_small": torchvision.models.mobilenet_v3_small(weights=None),
        "vit_tiny": timm.create_model("vit_tiny_patch16_224", pretrained=False),
    }
    for name, model in models.items():
        exported = torch.export.export(model.eval(), (torch.zeros(1, 3, 224, 224),))
        (folder / f"{name}.pte").write_bytes(to_edge(exported).to_executorch().buffer)


if __name__ == "__main__":
    main()
