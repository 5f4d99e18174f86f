"""Joint graphs, and what AOTAutograd's partitioner saves of them: ``python benchmarks/joint.py OUT``.

Runs in the peers' interpreter (``make bench`` makes ``.venv-peers``), which has PyTorch and transformers. Each
model is traced once; its graph is written to ``OUT/NAME.tmmu.cbor.gz``, to ``OUT/NAME.adamw.tmmu.cbor.gz`` the same
with a step of AdamW for each parameter, and to ``OUT/NAME.json`` the names of the values that the partitioner passes
from the forward to the backward graph at each of its memory budgets.
"""

from __future__ import annotations

import copy
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402

from benchmarks.adamw import add_adamw  # noqa: E402
from sample_graphs import make_torch  # noqa: E402
from tmmu_core.formats.pytorch.joint_graph import fx_joint  # noqa: E402
from tmmu_core.formats.pytorch.torch_module import fake_tensors, import_torch  # noqa: E402
from tmmu_core.graph.native import native_file  # noqa: E402

BUDGETS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1)


def bert() -> Any:
    """BERT base with its dropouts off: the partitioner as it is by default never runs them again."""
    from transformers import BertConfig, BertForMaskedLM

    off = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    with fake_tensors():
        model = BertForMaskedLM(BertConfig(loss_type="ForMaskedLM", attn_implementation="eager", **off))
        given = make_torch.tokens(8, 512, labels=True)
    return import_torch(model, given)


def vit() -> Any:
    """ViT-B/16 on eight images of 224², attention written out."""
    from transformers import ViTConfig, ViTForImageClassification

    with fake_tensors():
        model = ViTForImageClassification(ViTConfig(num_labels=1000, attn_implementation="eager"))
        given = {"pixel_values": torch.zeros(8, 3, 224, 224), "labels": torch.zeros(8, dtype=torch.long)}
    return import_torch(model, given)


MODELS: dict[str, Callable[[], Any]] = {
    "gpt2_small_b1_s1024": lambda: make_torch.gpt2(train=True, batch=1, length=1024, dropout=0.0),
    "bert_base_b8_s512": bert,
    "vit_b16_b8": vit,
    "resnet50_b32": lambda: make_torch.resnet50(train=True, batch=32, side=224),
}


def main(out: Path, names: list[str]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in names or MODELS:
        joint: list[Any] = []
        read: Any = fx_joint.read_joint

        def kept(graph_module: Any, *rest: Any, joint: list[Any] = joint, read: Any = read) -> Any:
            joint.append(copy.deepcopy(graph_module))
            joint.append(read(graph_module, *rest))
            return joint[-1]

        with mock.patch.object(fx_joint, "read_joint", kept):
            graph = MODELS[name]()
        file = out / f"{name}.tmmu.cbor.gz"
        file.write_bytes(native_file.encode(graph, file.name))
        stepped = add_adamw(graph, joint[1].gradients)
        (out / f"{name}.adamw.tmmu.cbor.gz").write_bytes(native_file.encode(stepped, f"{name}.adamw.tmmu.cbor.gz"))
        if (out / f"{name}.json").exists():
            continue  # the partitioner takes minutes
        answers = {"torch": torch.__version__, "budgets": [_partition(joint[0], budget) for budget in BUDGETS]}
        (out / f"{name}.json").write_text(json.dumps(answers, indent=1))
        print(name, len(graph.nodes), [len(each["saved"]) for each in answers["budgets"]], flush=True)


def _partition(joint: Any, budget: float) -> dict[str, Any]:
    from torch._functorch import config, partitioners

    joint = copy.deepcopy(joint)
    output = next(node for node in joint.graph.nodes if node.op == "output")
    descriptions = output.meta["desc"]
    forward = sum(1 for each in descriptions if each is not None and "Grad" not in type(each).__name__)
    began = time.perf_counter()
    with config.patch(activation_memory_budget=budget):
        ahead, _ = partitioners.min_cut_rematerialization_partition(joint, None, num_fwd_outputs=forward)
    seconds = time.perf_counter() - began
    returned = next(node for node in ahead.graph.nodes if node.op == "output").args[0]
    saved = [node for node in returned[forward:] if node is not None and node.op == "call_function"]
    return {"budget": budget, "seconds": round(seconds, 2), "saved": [_named(node) for node in saved]}


def _named(node: Any) -> list[Any]:
    """(the node that made it, which of its results)."""
    import operator

    if node.target is operator.getitem:
        return [node.args[0].name, node.args[1]]
    return [node.name, 0]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
