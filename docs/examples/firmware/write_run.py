"""Write the calls of an 8-bit TensorFlow Lite model: ``python write_run.py MODEL.tflite PROJECT > run.c``.

PROJECT is the folder of ``tmmu export MODEL.tflite --to c-project``; every operand is read and written at its planned
address. Operators: convolution, depthwise convolution, average pooling, fully connected, softmax, reshape.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import tflite

import tmmu

CODES = {value: name for name, value in vars(tflite.BuiltinOperator).items() if not name.startswith("_")}


def multiplier_of(scale: float) -> tuple[int, int]:
    """Return a real factor as a 31-bit integer and a power of two."""
    mantissa, shift = math.frexp(scale)
    fixed = round(mantissa * 2**31)
    if shift < -31:
        return 0, 0
    return (fixed // 2, shift + 1) if fixed == 2**31 else (fixed, shift)


class Writer:
    def __init__(self, model: Path, project: Path) -> None:
        self.model = tflite.Model.GetRootAs(model.read_bytes())
        self.sub = self.model.Subgraphs(0)
        self.graph = tmmu.read(model)
        residency = json.loads((project / "residency.json").read_text())
        self.prefix = residency["module_prefix"]
        self.macro = {tensor["tensor_id"]: tensor["macro"] for tensor in residency["tensors"]}

    def tensor(self, number: int) -> tuple[np.ndarray, np.ndarray, int]:
        """Return a tensor's shape, scales and zero point."""
        tensor = self.sub.Tensors(number)
        quantization = tensor.Quantization()
        return tensor.ShapeAsNumpy(), quantization.ScaleAsNumpy(), int(quantization.ZeroPoint(0))

    def low_high(self, activation: int, output: int) -> tuple[int, int]:
        """Return the range of an output after its activation."""
        _, scales, zero = self.tensor(output)
        low = max(-128, zero) if activation in (1, 3) else -128
        return low, min(127, zero + round(6 / float(scales[0]))) if activation == 3 else 127

    def quantized(self, ends: tuple[int, int, int], activation: int, *, is_dense: bool) -> str:
        """Return the initializer of ``quantized_t``."""
        (_, x, x_zero), (_, w, _), (shape, y, y_zero) = map(self.tensor, ends)
        products = [float(x[0] * w[0])] if is_dense else [float(x[0]) * float(scale) for scale in w]
        pairs = [multiplier_of(product / float(y[0])) for product in products]
        pairs *= int(shape[-1]) // len(pairs)
        tables = (f"(const int32_t[]){{{', '.join(map(str, column))}}}" for column in zip(*pairs, strict=True))
        low, high = self.low_high(activation, ends[2])
        return f"&(const quantized_t){{{x_zero}, {y_zero}, {low}, {high}, {', '.join(tables)}}}"

    def window(self, ends: tuple[int, int], options: object, height: int, width: int) -> str:
        """Return the initializer of ``window_t``."""
        (_, h, w, c), (_, out_h, out_w, out_c) = (self.tensor(end)[0] for end in ends)
        strides = options.StrideH(), options.StrideW()
        sizes = ((out_h, height, h, strides[0]), (out_w, width, w, strides[1]))
        is_same = options.Padding() == tflite.Padding.SAME
        pads = [max(0, (int(n) - 1) * s + k - int(size)) // 2 if is_same else 0 for n, k, size, s in sizes]
        values = (h, w, c, out_h, out_w, out_c, height, width, *strides, *pads)
        return f"&(const window_t){{{', '.join(map(str, values))}}}"

    def call(self, k: int) -> str:
        """Return the call of operator ``k``."""
        operator, node = self.sub.Operators(k), self.graph.nodes[k]
        code = CODES[self.model.OperatorCodes(operator.OpcodeIndex()).BuiltinCode()]
        ins, out = operator.InputsAsNumpy().tolist(), operator.Outputs(0)
        at = [f"AT({self.macro[tensor_id]})" for tensor_id in (*node.inputs, *node.outputs)]
        if code == "RESHAPE":
            return f"if ({at[-1]} != {at[0]}) {{ memcpy({at[-1]}, {at[0]}, {int(np.prod(self.tensor(out)[0]))}); }}"
        kind = {"CONV_2D": "Conv2D", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "AVERAGE_POOL_2D": "Pool2D"}.get(code)
        options = getattr(tflite, f"{kind or code.title().replace('_', '')}Options")()
        table = operator.BuiltinOptions()
        options.Init(table.Bytes, table.Pos)
        if code == "SOFTMAX":
            factor, shift = multiplier_of(min(options.Beta() * float(self.tensor(ins[0])[1][0]) * 2**26, 2**31 - 1.0))
            least = -math.floor(31 * 2**26 / 2**shift)
            given = [self.tensor(out)[0][-1], factor, shift, least]
        elif code == "AVERAGE_POOL_2D":
            window = self.window((ins[0], out), options, options.FilterHeight(), options.FilterWidth())
            given = [window, *self.low_high(options.FusedActivationFunction(), out)]
        elif code in ("FULLY_CONNECTED", "CONV_2D", "DEPTHWISE_CONV_2D"):
            is_dense = code == "FULLY_CONNECTED"
            q = self.quantized((ins[0], ins[1], out), options.FusedActivationFunction(), is_dense=is_dense)
            shape = self.tensor(ins[1])[0]
            given = [shape[1], shape[0], q] if is_dense else [self.window((ins[0], out), options, *shape[1:3]), q]
            at[2] = f"(const int32_t *)(const void *){at[2]}"
        else:
            raise SystemExit(f"no kernel for {code}")
        return f"{code.lower()}({', '.join(map(str, [*given, *at]))});"

    def source(self) -> str:
        """Return the C source: the calls in order and the addresses of input and output."""
        calls = [f"    {self.call(k)}" for k in range(self.sub.OperatorsLength())]
        ends = (self.graph.inputs[0], self.graph.outputs[0])
        lines = [
            f'#include "kernels.h"\n#include "{self.prefix}_memory.h"\n#include "run.h"\n\n#include <string.h>\n',
            f"#define AT(name) ((int8_t *){self.prefix}_arena_buffers[name##_REGION] + name##_OFFSET)\n",
            f"int run_ready(void) {{ return {self.prefix}_hydrate_constants() == 0; }}\n",
            *(
                f"int8_t *run_{end}(int32_t *size) {{\n    *size = {self.macro[tensor_id]}_SIZE;\n"
                f"    return AT({self.macro[tensor_id]});\n}}\n"
                for end, tensor_id in zip(("input", "output"), ends, strict=True)
            ),
            "void run(void) {", *calls, "}",
        ]  # fmt: skip
        return "\n".join(lines)


if __name__ == "__main__":
    print(Writer(Path(sys.argv[1]), Path(sys.argv[2])).source())
