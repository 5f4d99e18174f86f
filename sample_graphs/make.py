"""Write every sample: ``python -m sample_graphs.make`` (or ``make samples``). Every run writes the same bytes.

``CATALOGUE`` lists the graphs and ``INSTANCES`` the files without a graph, in the order of the gallery, with file,
title and lesson. ``index.json`` and ``README.md`` are generated from them. An entry without a function is a file from
another source, which is not written.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import onnx

from sample_graphs import lessons, mobilenet
from tests.support.paths import read_graph_file
from tmmu_core.graph.model import Graph
from tmmu_core.graph.native import native_file

HERE = Path(__file__).parent
LIGHT_MODELS = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"

LESSON, MODEL, INSTANCE, GIVEN = "lesson", "model", "instance", "given"
"""Groups of the gallery: lessons, published networks, packing problems, and plans of other tools."""


@dataclass(frozen=True)
class Sample:
    """One entry of the catalogue."""

    file: str
    title: str
    teaches: str
    make: Callable[[], Graph] | bytes | None
    group: str = LESSON
    source: str = "sample_graphs/lessons.py"


def light(name: str) -> Callable[[], Graph]:
    """Return the topology ``light_<name>.onnx`` of the onnx package as a graph with the name ``name``."""

    def make() -> Graph:
        found = read_graph_file(LIGHT_MODELS / f"light_{name}.onnx")
        return msgspec.structs.replace(found, name=name, shapes_from={})  # the shapes are in the sample

    return make


def topology(name: str, title: str, teaches: str) -> Sample:
    return Sample(f"{name}.tmmu.json.gz", title, teaches, light(name), MODEL, f"light_{name}.onnx of the onnx package")


def traced(name: str, title: str, teaches: str) -> Sample:
    return Sample(f"{name}.tmmu.cbor.gz", title, teaches, None, MODEL, "python -m sample_graphs.make_torch")


CATALOGUE: tuple[Sample, ...] = (
    topology(
        "resnet50", "ResNet-50", "Residual blocks of a real network: the shortcut is live at the peak of each block."
    ),
    topology("squeezenet", "SqueezeNet", "Eight fire modules, each with two branches and a concatenation."),
    topology("densenet121", "DenseNet-121", "Each layer reads all earlier layers: long live ranges and many slots."),
    topology("inception_v2", "Inception v2", "Four branches of different depth and size between two concatenations."),
    topology("inception_v1", "Inception v1", "The first version of Inception, with local response normalisation."),
    topology("shufflenet", "ShuffleNet", "Channel shuffles: the reshapes are views, the transposes are copies."),
    topology("vgg19", "VGG-19", "A deep chain whose first two layers have the peak."),
    topology("bvlc_alexnet", "AlexNet", "A short chain with large kernels; nearly all bytes are weights."),
    topology("zfnet512", "ZFNet-512", "The successor of AlexNet, a wider chain."),
    Sample(
        "mobilenet_v1.tmmu.json",
        "MobileNet v1",
        "A chain with a known optimum: 19.248 MiB of intermediate tensors fit in 4.594 MiB.",
        mobilenet.mobilenet_v1,
        MODEL,
        "sample_graphs/mobilenet.py",
    ),
    Sample(
        "mobilenet_v2.tmmu.json",
        "MobileNet v2",
        "Inverted residuals with a known optimum: 26.313 MiB of intermediate tensors fit in 5.742 MiB.",
        mobilenet.mobilenet_v2,
        MODEL,
        "sample_graphs/mobilenet.py",
    ),
    traced(
        "resnet50_train_b32_224",
        "ResNet-50, training step, batch 32",
        "Batch normalisation saves the output of each convolution and updates running statistics in place.",
    ),
    traced(
        "gpt2_small_train_b1_s1024",
        "GPT-2 small, training step",
        "Attention in plain operators: most bytes kept for the backward pass are matrices of 1,024 × 1,024.",
    ),
    traced(
        "gpt2_small_inference_b1_s1024",
        "GPT-2 small, inference",
        "The model without gradients: most tensors reuse memory in place, and the logits are the peak.",
    ),
    traced(
        "bert_base_train_b8_s512",
        "BERT base, training step, batch 8",
        "An encoder with a masked-language-model head; input and output embedding are one buffer.",
    ),
    traced(
        "llama3_8b_train_b1_s2048",
        "Llama 3 8B, training step",
        "8.03 billion parameters in bfloat16: live bytes grow with each layer, mostly by attention matrices.",
    ),
    traced(
        "llama3_405b_inference_b1_s2048",
        "Llama 3 405B, inference",
        "126 layers: 9,000 steps that need the memory of one layer and of the logits.",
    ),
    traced(
        "llama3_405b_train_b1_s2048",
        "Llama 3 405B, training step",
        "34,000 tensors: the saved tensors of a training step with 405.9 billion parameters.",
    ),
    Sample(
        "linear_chain.tmmu.json",
        "Linear chain",
        "In-place reuse: each element-wise output uses the memory of its input, so the chain needs one slot.",
        lessons.linear_chain,
    ),
    Sample(
        "linear_chain_none.tmmu.json",
        "Linear chain without in-place reuse",
        'The chain with "inplace": "none": input and output of a step are both live, so it needs two slots.',
        lessons.linear_chain_none,
    ),
    Sample(
        "residual_block.tmmu.json",
        "Residual block",
        "A shortcut keeps the input of the block live until the addition.",
        lessons.residual_block,
    ),
    Sample(
        "fan_out_fan_in.tmmu.json",
        "Fan-out, fan-in",
        "The results of four branches are live until they are concatenated, so the peak is there.",
        lessons.fan_out_fan_in,
    ),
    Sample(
        "early_output.tmmu.json",
        "Early output",
        "A graph output of an early step is live to the end.",
        lessons.early_output,
    ),
    Sample(
        "mixed_sizes.tmmu.json",
        "Mixed sizes",
        "Few slots can need many bytes: a slot is as large as its largest tensor.",
        lessons.mixed_sizes,
    ),
    Sample(
        "two_arenas.tmmu.json",
        "Two arenas",
        "Weights are in a separate arena, whose memory is never reused; a tensor can name its arena.",
        lessons.two_arenas,
    ),
    Sample(
        "views.tmmu.json",
        "Views",
        "A reshape, two halves, a view of a view and a broadcast use bytes of their base and keep the base live.",
        lessons.views,
    ),
    Sample(
        "in_place.tmmu.json",
        "In-place writes",
        "The graph requires that a cache and a score are overwritten in place.",
        lessons.in_place,
    ),
    Sample(
        "must_not_alias.tmmu.json",
        "Must not alias",
        "Two staging buffers must not share bytes, although their live ranges do not overlap: one more slot.",
        lessons.must_not_alias,
    ),
    Sample(
        "alias_group.tmmu.json",
        "Alias group",
        "Tied weights are one buffer with two names, live from the first write of a member to the last read.",
        lessons.alias_group,
    ),
    Sample(
        "training_step.tmmu.json",
        "Training step",
        "A graph with backward pass and optimizer: saved tensors are live until the backward pass reads them.",
        lessons.training_step,
    ),
    Sample(
        "remat.tmmu.json",
        "Rematerialisation",
        "Marked tensors are freed and computed again: compare a training step with and without recompute.",
        lessons.remat,
    ),
    Sample(
        "loop.tmmu.json",
        "Loop",
        "The body runs many times: tensors that it reads from outside are live until the loop ends.",
        lessons.loop,
    ),
    Sample(
        "dynamic_batch.tmmu.json",
        "Dynamic batch",
        "A named dimension with a range: planned for the largest size, or for a chosen size such as B = 8.",
        lessons.dynamic_batch,
    ),
    Sample(
        "node_centric.json",
        "Node-centric dialect",
        "Another format of a graph: nodes have shapes and ports, and no step loads the inputs.",
        lessons.NODE_CENTRIC.encode(),
    ),
)


def challenge(letter: str, rest: str) -> Sample:
    file = f"instances/{letter}.1048576.csv"
    return Sample(file, f"MiniMalloc {letter}", rest, None, INSTANCE, "google/minimalloc")


INSTANCES: tuple[Sample, ...] = (
    challenge("A", "SRAM with 1,048,576 bytes: greedy planners need more, the planner 'search' does not."),
    challenge("B", "170 buffers of another program, for the same memory as A."),
    challenge("C", "203 buffers; the smallest packing has 1,039,360 bytes."),
    challenge("D", "213 buffers; of the six problems, the hardest to prove optimal."),
    challenge("E", "215 buffers."),
    challenge("F", "296 buffers: the largest of the six."),
    Sample(
        "instances/somas_resnet50.csv",
        "SOMAS ResNet-50",
        "A trace of MindSpore: a thousand buffers, with a gap of less than 1 %.",
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
        "A plan of IREE: plan it again and compare.",
        None,
        GIVEN,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/iree_mobilebert.csv",
        "IREE, MobileBERT",
        "A plan of IREE: plan it again and compare.",
        None,
        GIVEN,
        "cappadokes/idealloc",
    ),
    Sample(
        "instances/pypto_matmul.json",
        "PyPTO, a matrix multiplication",
        "Four scratchpads of a kernel: a reuse that makes an engine wait has a cost. The lowest total is 9.",
        None,
        INSTANCE,
        "tonibohnlein/dsa-solver",
    ),
    Sample(
        "instances/xla_transformer_step.txt",
        "XLA, training step of a transformer",
        "A plan of XLA: temporaries use the bytes of donated parameters. A new plan is 5 % smaller.",
        None,
        GIVEN,
        "python -m sample_graphs.make_xla",
    ),
    Sample(
        "instances/xla_transformer_step_2x256.txt.gz",
        "XLA, training step of a wider transformer",
        "A plan of XLA with 80 MiB. A new plan with parameters and temporaries in one arena is 2 % smaller.",
        None,
        GIVEN,
        "python -m sample_graphs.make_xla",
    ),
)
"""Samples without a graph: packing problems, and plans of other tools."""


def content(sample: Sample) -> bytes | None:
    """Return the bytes of a sample; ``None`` for a file from another source."""
    if sample.make is None or isinstance(sample.make, bytes):
        return sample.make
    return native_file.encode(sample.make(), sample.file)


def index() -> str:
    """Return ``index.json``: the entries of the gallery in their order."""
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
