"""`delta_chunk`'s kernels compiled for GPUs that need not be there, as `tests.kernels_compiled` does for `score_map`.

python -m tests.kernels_delta_compiled 80 90
"""

from __future__ import annotations

import json
import sys
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from impls.kernels import delta_backward, delta_forward
from impls.kernels.delta_apply import chunk, last, values, warps
from tests.kernels_compiled import usage

KERNELS = (delta_forward.inverses, delta_forward.forward, delta_backward.walk_back, delta_backward.chunks)
INDICES = ("cu", "before", "of")
FLOAT32 = ("g", "e", "inverse", "states", "initial", "final", "dfinal", "dinitial", "dstates", "dg")
FORMS = {  # as they are run: DECAY 0 none, 1 a step, 2 a channel
    "linear": {"DECAY": 0},
    "GLA": {"DECAY": 2},
    "Gated DeltaNet": {"DECAY": 1, "DELTA": True},
    "Gated DeltaNet, 128 wide": {"DECAY": 1, "DELTA": True, "K": 128, "V": 128},
}


def compiled(function: Any, target: int, **form: Any) -> dict[str, int]:
    """Registers a thread, bytes of stack a thread, bytes shared, for bfloat16."""
    told = {"H": 8, "K": 64, "V": 64, "DELTA": False, "INITIAL": True, "KEEP": True} | form
    told["C"] = size = chunk(told["K"], told["DECAY"])
    told |= {
        "BLOCK_V": values(told["K"]),
        "BLOCK_K": told["K"],
        "LEVELS": size.bit_length() - 1,
        "PRECISION": "tf32",
    }
    if function is delta_backward.chunks:
        told |= last(told["K"])
    signature, constants, aligned = {}, {}, {}
    for at, parameter in enumerate(function.params):
        name = parameter.name
        if parameter.is_constexpr:
            signature[name], constants[(at,)] = "constexpr", told[name]
        elif name.endswith("_ptr"):
            stem = name.removesuffix("_ptr")
            signature[name] = "*i32" if stem in INDICES else "*fp32" if stem in FLOAT32 else "*bf16"
        else:
            signature[name] = "i32"
        if name.endswith("_ptr") or (name[-2:] in ("_t", "_h") and not name.startswith("g_")):
            aligned[(at,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, constants, aligned)
    options = {"num_warps": warps(function, told["K"]), "num_stages": 1}
    code = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    return {"shared": code.metadata.shared} | usage(code.asm["cubin"])


if __name__ == "__main__":
    wanted = [(f"{name} {function.__name__}, sm_{target}", function, int(target), form)
              for target in sys.argv[1:] for name, form in FORMS.items() for function in KERNELS
              if form.get("DELTA") or function is not delta_forward.inverses]  # fmt: skip
    json.dump({label: compiled(function, target, **form) for label, function, target, form in wanted}, sys.stdout)
