"""Programs that ExecuTorch plans for itself, made for ``tmmu measure``: ``python -m benchmarks.executorch FOLDER``.

It runs in an environment of its own, for ExecuTorch pins much (``pip install executorch==1.5.1 torch==2.14.1
torchvision==0.29.1 timm``), and needs nothing of this project. Weights are drawn, not fetched: a plan has none.
"""

import sys
from pathlib import Path


def main() -> None:
    """Write each program into the folder given."""
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
