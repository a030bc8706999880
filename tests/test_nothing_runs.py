"""Nothing that is read can run: weights, resume states, data, models of the Hub, specs and templates are data alone.

The first tests hold the sources to it, by their syntax trees; the others try it. Models of the Hub are tried in
`tests/test_measure.py`.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch

from harness import state, yamlio
from harness.errors import UserError

ROOT = Path(__file__).parents[1]
RUNNING = {"eval", "exec", "compile", "__import__", "os.system", "os.popen", "yaml.load", "yaml.full_load"}
RUNNING |= {"yaml.unsafe_load", "yaml.load_all", "env.from_string", "Environment.from_string", "torch.jit.load"}
PICKLES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
ASKED = {"torch.load": "weights_only", "np.load": "allow_pickle", "numpy.load": "allow_pickle"}
SAFE = {
    "weights_only": True,
    "allow_pickle": False,
    "trust_remote_code": False,
    "use_safetensors": True,
    "shell": False,
}
SAFE |= {"autoescape": True}
EMBEDDED = {"data|embed", "drawn.body", "chart.json"}  # JSON with < escaped, and pictures that the harness draws


def faults(source: str) -> Iterator[str]:
    """What in a module may run what it reads."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            yield from (f"{node.lineno}: imports {name}" for name in names if name.partition(".")[0] in PICKLES)
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            given = {each.arg: each.value for each in node.keywords if each.arg}
            if called in RUNNING:
                yield f"{node.lineno}: calls {called}"
            if called in ASKED and ASKED[called] not in given:
                yield f"{node.lineno}: {called} without {ASKED[called]}"
            if called.startswith("AutoModel") and not {"use_safetensors", None} & {each.arg for each in node.keywords}:
                yield f"{node.lineno}: {called} takes weights of any kind"
            yield from (f"{node.lineno}: {name}" for name, value in given.items() if _unsafe(name, value))
        if isinstance(node, ast.Dict):
            pairs = [
                (key.value, value)
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant)
            ]
            yield from (f"{node.lineno}: {name}" for name, value in pairs if _unsafe(name, value))


def _unsafe(name: object, value: ast.expr) -> bool:
    return name in SAFE and not (isinstance(value, ast.Constant) and value.value is SAFE[str(name)])


def sources() -> list[Path]:
    return sorted(path for folder in ("harness", "impls", "benchmarks") for path in (ROOT / folder).rglob("*.py"))


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_runs_nothing_that_it_reads(path: Path):
    assert list(faults(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(
    "source",
    [
        "eval(text)",
        "os.system(f'rm {x}')",
        "subprocess.run(x, shell=True)",
        "torch.load(file)",
        "torch.load(file, weights_only=False)",
        "np.load(file)",
        "np.load(file, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "import pickle",
        "from joblib import load",
        "env.from_string(paper.title)",
        "Environment(autoescape=False)",
        "kind.from_pretrained(name, trust_remote_code=True)",
        "kind.from_pretrained(name, trust_remote_code=asked)",
        "options = {'trust_remote_code': True}",
        "AutoModel.from_pretrained(name)",
        "kind.from_pretrained(name, use_safetensors=False)",
    ],
)
def test_what_would_run_is_seen(source: str):
    assert list(faults(source))


def test_every_model_of_the_hub_is_asked_for_without_its_code():
    """Each call of `from_pretrained` and `load_dataset` lies where its options are safe ones, or has none to give."""
    asked = {}
    for path in sources():
        for line in re.findall(r"^.*\b(?:from_pretrained|load_dataset)\(.*$", path.read_text("utf-8"), re.MULTILINE):
            asked.setdefault(str(path.relative_to(ROOT)), []).append(line.strip())
    safe = [
        line for lines in asked.values() for line in lines if "trust_remote_code=False" in line or "**safely" in line
    ]
    assert len(safe) >= 2
    assert {file for file, lines in asked.items() if not set(lines) <= set(safe)} <= {"harness/sources.py"}


def test_templates_escape_all_but_what_the_harness_makes():
    for path in sorted((ROOT / "templates").rglob("*.j2")):
        text = path.read_text(encoding="utf-8")
        for part in re.findall(r"\{\{-?\s*([^}]*?)\s*\|\s*safe\b", text):
            assert part in EMBEDDED, f"{path}: {part}"
        assert not re.search(r"autoescape|\{%-?\s*import .*(http|\.\.)", text), path


class Payload:
    """What would leave a file behind if it were unpickled."""

    def __init__(self, mark: Path):
        self.mark = mark

    def __reduce__(self) -> Any:
        return Path.touch, (self.mark,)


def test_a_forged_state_is_not_used_and_runs_nothing(tmp_path: Path):
    mark, file, said = tmp_path / "ran", tmp_path / "state.pt", []
    buffer = BytesIO()
    torch.save({"fingerprint": "f", "payload": Payload(mark)}, buffer)
    content = buffer.getvalue()
    file.write_bytes(state.MAGIC + hashlib.sha256(content).digest() + content)
    assert state.load(file, "f", said.append) is None
    assert len(said) == 1
    assert not mark.exists()
    torch.load(BytesIO(content), weights_only=False)
    assert mark.exists(), "the forged state is harmless, and this test says nothing"


@pytest.mark.parametrize(
    "bomb",
    [
        "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\nd: [*c, *c]\n",
        "a: &a {k: 1}\nb:\n  <<: *a\n",
        "a: &a [*a]\n",
    ],
)
def test_an_alias_bomb_is_refused_at_its_first_anchor(bomb: str):
    with pytest.raises(UserError, match=r"^x\.yaml:1: a: anchors and aliases .* are not read; write the value out$"):
        yamlio.parse(bomb.encode(), "x.yaml")
