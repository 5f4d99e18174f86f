"""Fit and run a training step of published PyTorch models: ``python -m benchmarks.libraries [MODEL …]``.

The language models of transformers have four layers of width 64, the models of timm are small ones of different
families; weights are random. Each step is fitted to 60 and 40 % of what eager mode holds beside parameters, buffers and
inputs, and run once, in a process of its own. The command writes ``benchmarks/found/libraries.json`` and
``docs/measured/libraries.md``. It needs PyTorch, transformers and timm.
"""

import argparse
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import msgspec

from benchmarks.real import FOLDER, ROOT, Row, Start, commit, measured_fits

OUT = FOLDER / "libraries.md"
FOUND = ROOT / "benchmarks" / "found" / "libraries.json"
PERCENTS = (60, 40)
SECONDS = 900  # maximum for one model
PIXELS, BATCH, TOKENS, WORDS = 96, 4, 64, 512
TRANSFORMERS = {
    "ForCausalLM": "Bloom Falcon GPTNeo GPTNeoX Gemma Gemma2 Llama Mamba2 Mistral Mixtral OPT Olmo Phi Phi3 Qwen2 "
    "Qwen2Moe Qwen3 StableLm",
    "LMHeadModel": "GPT2 XLNet",
    "ForMaskedLM": "Albert Bert BigBird ConvBert DebertaV2 DistilBert Electra FNet Longformer Nystromformer Roberta",
    "ForConditionalGeneration": "Bart Pegasus T5",
}
SMALL: dict[str, Any] = {
    **dict.fromkeys(("vocab_size",), WORDS),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "d_inner"), 128),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "max_position_embeddings"), 128),
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers"), 4),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads", "num_local_experts", "num_experts"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_key_value_heads",), 2),
    **dict.fromkeys(("head_dim", "d_kv", "chunk_size", "state_size"), 16),
    "use_cache": False,
    "pad_token_id": 0,
}
"""Setting → value, for each configuration class that has the setting."""
SETTINGS: dict[str, dict[str, Any]] = {
    "GPTNeo": {"attention_types": [[["global", "local"], 2]]},
    "Mamba2": {"num_heads": 8, "n_groups": 1},
    "Mixtral": {"experts_implementation": "batched_mm"},
    "Pegasus": {"decoder_start_token_id": 0},
    "Qwen2Moe": {"experts_implementation": "batched_mm"},
    "T5": {"decoder_start_token_id": 0},
}
TIMM = """
convnext_atto_rms crossvit_tiny_240 davit_tiny deit_tiny_patch16_224 densenet201 dla60x_c edgenext_xx_small
efficientformer_l1 efficientnet_lite0 eva02_tiny_patch14_224 fasternet_t0 fastvit_s12 focalnet_tiny_srf ghostnet_050
hgnetv2_b0 hiera_tiny_224 inception_v3 lcnet_035 maxvit_pico_rw_256 mixer_s16_224 mobileone_s1 mobilevit_xxs
mvitv2_tiny pit_xs_224 poolformerv2_s12 pvt_v2_b0 regnetx_002 repvit_m0_9 resnet10t resnetv2_50 rexnet_100
starnet_s050 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 test_mambaout test_nfnet test_vit tiny_vit_5m_224
twins_svt_small visformer_tiny xcit_nano_12_p8_224
"""


class Found(msgspec.Struct):
    """The result of one model."""

    commit: str
    versions: str
    """Versions of PyTorch and the library."""
    rejected: str = ""
    """The error; empty if the step was run."""
    start: Start | None = None
    rows: list[Row] = []


def names() -> dict[str, str]:
    """Return the models by name, with their library."""
    classes = [each + suffix for suffix, models in TRANSFORMERS.items() for each in models.split()]
    return dict.fromkeys(classes, "transformers") | dict.fromkeys(TIMM.split(), "timm")


def step_of(name: str) -> tuple[Any, tuple[Any, ...]]:
    """Return a module that computes the loss of a model, and its inputs."""
    import torch

    torch.manual_seed(0)
    if names()[name] == "timm":
        import timm

        default = timm.models.get_pretrained_cfg(name)
        pixels = default.input_size[-1] if default is not None and default.fixed_input_size else PIXELS
        images = torch.randn(BATCH, 3, pixels, pixels)
        module, inputs = timm.create_model(name, num_classes=10), (images, torch.randint(10, (BATCH,)))
    else:
        import transformers

        base = next(name.removesuffix(suffix) for suffix in TRANSFORMERS if name.endswith(suffix))
        config = getattr(transformers, f"{base}Config")
        small = {key: SMALL[key] for key in config().to_dict() if key in SMALL} | SETTINGS.get(base, {})
        module = getattr(transformers, name)(config(**small))
        inputs = tuple(torch.randint(WORDS, (BATCH, TOKENS)) for _ in range(2))

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = module

        def forward(self, given: torch.Tensor, labels: torch.Tensor) -> Any:
            if names()[name] == "transformers":
                return self.model(input_ids=given, labels=labels).loss
            found = self.model(given)
            return torch.nn.functional.cross_entropy(found[0] if isinstance(found, tuple | list) else found, labels)

    return Loss(), inputs


def measured(name: str) -> Found:
    """Fit and run the step of a model, and return its result."""
    from tmmu_core.base.errors import TmmuError

    of = Found(commit(), f"PyTorch {version('torch')}, {names()[name]} {version(names()[name])}")
    module, inputs = step_of(name)
    try:
        _, of.start, of.rows = measured_fits(name, module, inputs, PERCENTS)
    except TmmuError as error:
        of.rejected = str(error).replace("\n", " ")
    return of


def page(found: dict[str, Found]) -> str:
    """Return the page of the results."""
    lines = [
        "# Published PyTorch models",
        "",
        "`python -m benchmarks.libraries` fits one training step of each model to 60 and 40 % of eager mode's",
        "activation peak, and runs it on the CPU. *As planned*: the measured peak is within 3 % of the plan, and",
        "within the capacity where the step fits; gradients and buffers are equal bit by bit. Every row:",
        "[libraries.json](../../benchmarks/found/libraries.json). [Own steps](real.md).",
        "",
        "| library | models | rejected | fits / cannot / open | run as planned | eager plan, largest difference |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    of_library = names()
    for library in dict.fromkeys(of_library.values()):
        results = [each for name, each in found.items() if of_library.get(name) == library]
        rows = [row for each in results for row in each.rows]
        answers = " / ".join(str(sum(row.answer == answer for row in rows)) for answer in ("fits", "cannot", "open"))
        good = sum(row.is_within_goals for row in rows)
        starts = [each.start for each in results if each.start is not None]
        worst = max((abs(each.planned_bytes / each.eager_bytes - 1) for each in starts), default=0)
        rejected = sum(bool(each.rejected) for each in results)
        listed = sum(each == library for each in of_library.values())
        columns = (
            library,
            f"{len(results)} of {listed}",
            rejected,
            answers,
            f"{good} of {len(rows)}",
            f"{100 * worst:.2f} %",
        )
        lines.append(f"| {' | '.join(map(str, columns))} |")
    if names_rejected := [name for name, each in found.items() if each.rejected]:
        lines += ["", f"Rejected with an error that names the cause: {', '.join(names_rejected)}."]
    commits: dict[str, set[str]] = {}
    for each in found.values():
        commits.setdefault(each.versions, set()).add(each.commit)
    measured_at = [f"- {versions}: {', '.join(sorted(of))}" for versions, of in commits.items()]
    return "\n".join([*lines, "", "Commits:", "", *measured_at]) + "\n"


def main(argv: list[str] | None = None) -> None:
    """Measure the named models, or all, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"one of {', '.join(names())}")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args(argv)
    if given.one:
        print("\n" + msgspec.json.encode(measured(given.one)).decode())
        return
    for name in given.models or names():
        command = [sys.executable, "-m", "benchmarks.libraries", "--one", name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1]}")
            continue
        of = msgspec.json.decode(done.stdout.splitlines()[-1], type=Found)
        print(
            name, of.rejected or [f"{row.percent} % {row.answer} {row.is_within_goals}" for row in of.rows], flush=True
        )
        found = msgspec.json.decode(FOUND.read_bytes(), type=dict[str, Found]) if FOUND.exists() else {}
        found[name] = of
        found = {each: found[each] for each in names() if each in found}
        FOUND.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
        OUT.write_text(page(found))


if __name__ == "__main__":
    main()
