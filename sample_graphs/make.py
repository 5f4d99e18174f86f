"""Write every sample: ``python -m sample_graphs.make`` (or ``make samples``). The same bytes at every run.

``CATALOGUE`` lists the graphs, ``INSTANCES`` what is no graph: the gallery's order, the file, its title and what it
teaches. ``index.json`` and ``README.md`` are written from them. An entry without a maker is a file made elsewhere (its
source says where); it is listed and left as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import onnx

from sample_graphs import lessons, mobilenet
from tmmu_core.graph.native import native_file
from tmmu_core.formats.open_file import read_graph_file
from tmmu_core.graph.model import Graph

HERE = Path(__file__).parent
LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

LESSON, MODEL, INSTANCE, GIVEN = "lesson", "model", "instance", "given"
"""Groups of the gallery: what teaches one thing, published networks, packing problems, and plans made elsewhere."""


@dataclass(frozen=True)
class Sample:
    """One line of the catalogue."""

    file: str
    title: str
    teaches: str
    make: Callable[[], Graph] | bytes | None
    group: str = LESSON
    source: str = "sample_graphs/lessons.py"


def light(name: str) -> Callable[[], Graph]:
    """The topology ``light_<name>.onnx`` of the onnx package, under its plain name."""

    def make() -> Graph:
        found = read_graph_file(LIGHT_MODELS / f"light_{name}.onnx")
        return msgspec.structs.replace(found, name=name, shapes_from={})  # a sample says its shapes itself

    return make


def topology(name: str, title: str, teaches: str) -> Sample:
    return Sample(f"{name}.tmmu.json.gz", title, teaches, light(name), MODEL, f"light_{name}.onnx of the onnx package")


def traced(name: str, title: str, teaches: str) -> Sample:
    return Sample(f"{name}.tmmu.cbor.gz", title, teaches, None, MODEL, "python -m sample_graphs.make_torch")


CATALOGUE: tuple[Sample, ...] = (
    topology(
        "resnet50", "ResNet-50", "Residual blocks of a real network: the shortcut decides the peak of each block."
    ),
    topology("squeezenet", "SqueezeNet", "Fire modules: two branches that meet in a concatenation, eight times."),
    topology("densenet121", "DenseNet-121", "Each layer reads all before it: long lives, many slots, much waste."),
    topology("inception_v2", "Inception v2", "Four branches of different depth and size between two concatenations."),
    topology("inception_v1", "Inception v1", "The same idea in its first form, with local response normalisation."),
    topology("shufflenet", "ShuffleNet", "Channel shuffles: reshapes that are views, transposes that are not."),
    topology("vgg19", "VGG-19", "A plain deep chain whose first two layers decide everything."),
    topology("bvlc_alexnet", "AlexNet", "A short chain with large kernels; nearly all bytes are weights."),
    topology("zfnet512", "ZFNet-512", "AlexNet's successor: a wider chain."),
    Sample(
        "mobilenet_v1.tmmu.json",
        "MobileNet v1",
        "A chain with a known answer: 19.248 MiB of intermediates fit in 4.594 MiB.",
        mobilenet.mobilenet_v1,
        MODEL,
        "sample_graphs/mobilenet.py",
    ),
    Sample(
        "mobilenet_v2.tmmu.json",
        "MobileNet v2",
        "Inverted residuals with a known answer: 26.313 MiB of intermediates fit in 5.742 MiB.",
        mobilenet.mobilenet_v2,
        MODEL,
        "sample_graphs/mobilenet.py",
    ),
    traced(
        "resnet50_train_b32_224",
        "ResNet-50, training step, batch 32",
        "Batch normalisation keeps each convolution's output and writes its running statistics in place.",
    ),
    traced(
        "gpt2_small_train_b1_s1024",
        "GPT-2 small, training step",
        "Attention written out in plain operators: its squares of 1,024 × 1,024 are most of what is saved.",
    ),
    traced(
        "gpt2_small_inference_b1_s1024",
        "GPT-2 small, inference",
        "The same model without gradients: nearly everything is handed on, and the logits are the peak.",
    ),
    traced(
        "bert_base_train_b8_s512",
        "BERT base, training step, batch 8",
        "An encoder with a masked-language-model head; input and output embedding are one storage.",
    ),
    traced(
        "llama3_8b_train_b1_s2048",
        "Llama 3 8B, training step",
        "8.03 billion parameters in bfloat16: what is saved grows layer by layer, most of it squares of attention.",
    ),
    traced(
        "llama3_405b_inference_b1_s2048",
        "Llama 3 405B, inference",
        "126 layers: 9,000 steps that need the memory of one layer and the logits.",
    ),
    traced(
        "llama3_405b_train_b1_s2048",
        "Llama 3 405B, training step",
        "34,000 tensors: what a training step of 405.9 billion parameters saves, and when it is let go.",
    ),
    Sample(
        "linear_chain.tmmu.json",
        "Linear chain",
        "Hand-offs: each element-wise output takes the place of its input, so one slot holds the whole chain.",
        lessons.linear_chain,
    ),
    Sample(
        "linear_chain_none.tmmu.json",
        "Linear chain without hand-offs",
        'The same chain with "inplace": "none": input and output of a step are both alive, so it takes two slots.',
        lessons.linear_chain_none,
    ),
    Sample(
        "residual_block.tmmu.json",
        "Residual block",
        "A shortcut keeps the block's input alive until the addition.",
        lessons.residual_block,
    ),
    Sample(
        "fan_out_fan_in.tmmu.json",
        "Fan-out, fan-in",
        "Four branches of one tensor wait for each other: the peak is at the join.",
        lessons.fan_out_fan_in,
    ),
    Sample(
        "early_output.tmmu.json",
        "Early output",
        "A graph output made early holds its bytes to the very end.",
        lessons.early_output,
    ),
    Sample(
        "mixed_sizes.tmmu.json",
        "Mixed sizes",
        "Few slots are not few bytes: slots that small and large tensors share all become large.",
        lessons.mixed_sizes,
    ),
    Sample(
        "two_arenas.tmmu.json",
        "Two arenas",
        "Weights lie in an arena of their own and are never reused; a tensor can be sent to an arena by name.",
        lessons.two_arenas,
    ),
    Sample(
        "views.tmmu.json",
        "Views",
        "A reshape, two halves, a view of a view and a broadcast: none has bytes of its own, all keep their base alive.",
        lessons.views,
    ),
    Sample(
        "in_place.tmmu.json",
        "In-place writes",
        "A cache and a score that are written over: a demand of the graph, not a permission like a hand-off.",
        lessons.in_place,
    ),
    Sample(
        "must_not_alias.tmmu.json",
        "Must not alias",
        "Two staging buffers that may never share a byte, though their lives do not meet: one slot more than max live.",
        lessons.must_not_alias,
    ),
    Sample(
        "alias_group.tmmu.json",
        "Alias group",
        "Tied weights are one storage under two names; a group lives from its first birth to its last death.",
        lessons.alias_group,
    ),
    Sample(
        "training_step.tmmu.json",
        "Training step",
        "A graph with its own backward and optimizer: what is saved in forward is paid for until backward reads it.",
        lessons.training_step,
    ),
    Sample(
        "remat.tmmu.json",
        "Rematerialisation",
        "Marked tensors are dropped and computed again: compare the presets train_full and remat_enabled.",
        lessons.remat,
    ),
    Sample(
        "loop.tmmu.json",
        "Loop",
        "The body stands once in the order and runs many times: what it reads from outside lives until the loop closes.",
        lessons.loop,
    ),
    Sample(
        "dynamic_batch.tmmu.json",
        "Dynamic batch",
        "A named dimension with an envelope: plan at its upper end, or choose a point with --dims B=8.",
        lessons.dynamic_batch,
    ),
    Sample(
        "node_centric.json",
        "Node-centric dialect",
        "The other spelling of a graph: nodes hold shapes and name ports; there is no loading step.",
        lessons.NODE_CENTRIC.encode(),
    ),
)


def challenge(letter: str, rest: str) -> Sample:
    file = f"instances/{letter}.1048576.csv"
    return Sample(file, f"MiniMalloc {letter}", rest, None, INSTANCE, "google/minimalloc")


INSTANCES: tuple[Sample, ...] = (
    challenge("A", "An accelerator's SRAM: no greedy order fits it into 1,048,576 bytes, search does."),
    challenge("B", "The same memory, another program: 170 buffers."),
    challenge("C", "203 buffers whose packing goes down to 1,039,360 bytes, and not below."),
    challenge("D", "213 buffers, for which height and bound are hardest to bring together."),
    challenge("E", "215 buffers."),
    challenge("F", "296 buffers: the largest of the six."),
    Sample(
        "instances/somas_resnet50.csv",
        "SOMAS ResNet-50",
        "A trace of MindSpore: a thousand buffers, and a gap of tenths of a percent to close.",
        None,
        INSTANCE,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/somas_tiny_bert.csv",
        "SOMAS TinyBERT",
        "A trace of MindSpore: two thousand buffers.",
        None,
        INSTANCE,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/iree_first.csv",
        "IREE, a small module",
        "Opens as IREE placed it; plan it again and compare.",
        None,
        GIVEN,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/iree_mobilebert.csv",
        "IREE, MobileBERT",
        "Opens as IREE placed it; plan it again and compare.",
        None,
        GIVEN,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/pypto_matmul.json",
        "PyPTO, a matrix multiplication",
        "Four scratchpads of a kernel: reuses that make engines wait have a price; the least sum is 9.",
        None,
        INSTANCE,
        "tonibohnlein/dsa-solver",
    ),
    Sample(
        "instances/xla_transformer_step.txt",
        "XLA, a transformer's training step",
        "A dump with XLA's own offsets: donated parameters hold temporaries. A re-plan is 5 % smaller.",
        None,
        GIVEN,
        "python -m sample_graphs.make_xla",
    ),
    Sample(
        "instances/xla_transformer_step_2x256.txt.gz",
        "XLA, a wider transformer's training step",
        "80 MiB: XLA's temporaries are at their bound, and a re-plan that mixes them with the parameters is 2 % smaller.",
        None,
        GIVEN,
        "python -m sample_graphs.make_xla",
    ),
)
"""What opens without a graph: packing problems, and plans that another tool made."""


def content(sample: Sample) -> bytes | None:
    """The file's bytes, or ``None`` for a file made elsewhere."""
    if sample.make is None or isinstance(sample.make, bytes):
        return sample.make
    return native_file.encode(sample.make(), sample.file)


def index() -> str:
    """``index.json``: what the gallery shows, in its order."""
    listed = {"samples": _rows(CATALOGUE), "instances": _rows(INSTANCES)}
    return json.dumps(listed, ensure_ascii=False, indent=1) + "\n"


def _rows(samples: tuple[Sample, ...]) -> list[dict[str, str]]:
    return [
        {"file": s.file, "title": s.title, "teaches": s.teaches, "group": s.group, "source": s.source} for s in samples
    ]


def readme() -> str:
    """Return ``README.md``: a list of the samples by group."""
    lines = [
        "# Sample graphs",
        "",
        "Native graph files (contract §8). `make samples` writes them, this page and `index.json` from `make.py`.",
        "`index.json` and the gallery of the explorer describe each sample. Golden traces are in `golden/`.",
    ]
    for group, heading in ((LESSON, "Lessons"), (MODEL, "Published networks")):
        lines += ["", f"## {heading}", "", *(f"- [`{s.file}`]({s.file})" for s in CATALOGUE if s.group == group)]
    lines += ["", "## Without a graph", "", "[Sources](instances/README.md).", ""]
    lines += [f"- [`{s.file}`]({s.file})" for s in INSTANCES]
    lines += [
        "",
        "The nine topologies of the onnx package have `ConstantOfShape` instead of weights, so their weights have the role",
        "`constant`. They are at batch 1, 224×224, float32.",
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    for sample in CATALOGUE:
        data = content(sample)
        if data is not None:
            (HERE / sample.file).write_bytes(data)
            print(f"{len(data):>9,} B  {sample.file}")
    (HERE / "index.json").write_text(index(), encoding="utf-8")
    (HERE / "README.md").write_text(readme(), encoding="utf-8")


if __name__ == "__main__":
    main()
