"""Kernels compiled for GPUs that need not be there: registers, spilled bytes and shared memory of each, as JSON.

    python -m tests.kernels_compiled 80 90

A process of its own: with Triton's interpreter switched on, nothing can be compiled.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import triton
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from impls.kernels import score_apply, score_backward, score_ends, score_forward
from impls.kernels.score_launch import Tiles

KERNELS = {
    "forward": (score_forward.forward, score_forward.TILES),
    "queries": (score_backward.queries, score_backward.QUERIES),
    "keys": (score_backward.keys, score_backward.KEYS),
}
ENDS = {"ends": (score_ends.forward, score_ends.TILES), "ends' keys": (score_ends.keys, score_ends.TILES)}
MAPS = ("softmax", "softpick", "cog", "adjust", "reweight", "softplus", "sigmoid", "relu_index")
FLOAT32 = ("row", "stat", "dstat", "delta", "drow", "ends", "dends", "part", "part_stat")
Kernel = tuple[Any, Tiles]


def listed(target: int) -> Iterator[tuple[str, Kernel, dict[str, Any]]]:
    """Every map 64 wide in bfloat16; for the newer target, softmax with a row, 128 and 256 wide and in float32 too."""
    for name in MAPS:
        for part, kernel in KERNELS.items():
            yield f"{name} {part}", kernel, {"MAP": name, "ROW": name in ("adjust", "reweight")}
    for part, kernel in ENDS.items():
        yield part, kernel, {"MAP": "adjust"}
    yield "softmax forward, a part", KERNELS["forward"], {"MAP": "softmax", "PARTS": 8}
    yield "softmax merge", (score_forward.merge, score_forward.TILES), {"MAP": "softmax", "PARTS": 8}
    for part, kernel in KERNELS.items() if target >= 90 else ():
        yield f"softmax {part}, with a row", kernel, {"MAP": "softmax", "ROW": True, "DSTAT": True}
        yield f"softmax {part}, 128 wide", kernel, {"MAP": "softmax", "K": 128, "V": 128}
        yield f"softmax {part}, 256 wide", kernel, {"MAP": "softmax", "K": 256, "V": 256}
        yield f"softmax {part}, float32", kernel, {"MAP": "softmax", "dtype": "fp32"}


def compiled(kernel: Kernel, target: int, dtype: str = "bf16", **constants: Any) -> dict[str, int]:
    """What the machine code of one kernel needs: registers a thread, bytes of stack a thread, bytes shared."""
    function, tiles = kernel
    large = dtype == "fp32" or constants.get("K", 0) > 128
    M, N, warps, stages = (tiles.wide if large else tiles.usual)[0]
    told = {
        "H": 8,
        "GROUP": 1,
        "K": 64,
        "V": 64,
        "ROW": False,
        "DSTAT": False,
        "PRECISION": "ieee",
        "PARTS": 1,
        "M": M,
        "N": N,
    }
    told |= constants
    known = FLOAT32 if told["PARTS"] == 1 else (*FLOAT32, "y")
    told |= {"BLOCK_K": told["K"], "BLOCK_V": told["V"]}
    told |= {"PEAKED": told["MAP"] in score_apply.PEAKED, "NORMED": told["MAP"] in score_apply.NORMED}
    signature, values, aligned = {}, {}, {}
    for at, parameter in enumerate(function.params):
        name = parameter.name
        if parameter.is_constexpr:
            signature[name], values[(at,)] = "constexpr", told[name]
        elif name.endswith("_ptr"):
            stem = name.removesuffix("_ptr")
            signature[name] = "*i32" if stem == "at" else "*fp32" if stem in known else f"*{dtype}"
        else:
            signature[name] = "fp32" if name in ("c", "bias", "scale") else "i32"
        if name[-4:] == "_ptr" or name[-2:] in ("_b", "_h", "_t", "_s"):
            aligned[(at,)] = [["tt.divisibility", 16]]
    source = ASTSource(function, signature, values, aligned)
    options = {"num_warps": warps, "num_stages": stages}
    code = triton.compile(source, target=GPUTarget("cuda", target, 32), options=options)
    return {"shared": code.metadata.shared} | usage(code.asm["cubin"])


def usage(cubin: bytes) -> dict[str, int]:
    """Registers and stack by the tool that comes with Triton; what does not fit registers lies on the stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", file.name]
        page = subprocess.run(command, check=True, text=True, capture_output=True).stdout
    return {name: int(found) for name, found in re.findall(r"(REG|STACK):(\d+)", page)}


def main(targets: list[int]) -> None:
    code = {
        f"{name}, sm_{target}": compiled(kernel, target, **told)
        for target in targets
        for name, kernel, told in listed(target)
    }
    json.dump(code, sys.stdout)


if __name__ == "__main__":
    main([int(target) for target in sys.argv[1:]])
