"""`harness.prove`, proved: it shows planted bugs as failed, and exemptions that hold; no answer depends on order."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

import impls
from harness import prove as command
from harness.deterministic import be_deterministic
from harness.errors import UserError
from harness.proofs import record, vectors
from harness.proofs.cases import Case
from harness.proofs.identities import tests as identity_tests
from harness.proofs.properties import PROPERTIES, prove
from harness.proofs.record import Proof, Result
from impls import gla, ops, softmax
from tests import test_bugs as bugs

ROOT = Path(__file__).parents[1]
ASK = {property.name: property for property in PROPERTIES}
PLANTED = Case("planted", ())


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch):
    """Put a mechanism into `impls` for one test."""

    def place(mixer_class: type) -> None:
        module = ModuleType("impls.planted")
        module.Mixer = mixer_class  # pyright: ignore[reportAttributeAccessIssue]
        monkeypatch.setitem(sys.modules, "impls.planted", module)

    return place


@pytest.mark.parametrize(
    ("mixer_class", "name", "words"),
    [
        (bugs.WholeChunksOnly, "lengths", "RuntimeError"),
        (bugs.SeesTheNextToken, "causal_by_prefix", "a prefix of 1 tokens is not close: "),
        (bugs.NoMask, "causal_by_jacobian", "output 0 depends on a later token: gradient "),
        (bugs.SeesTheNextToken, "causal_by_edit", "before a change from token 1 on is not close: "),
        (bugs.Identity, "past_used", "does not depend on token 0 of 8"),
        (bugs.BatchStatistics, "rows_independent", "row 0 alone is not close: "),
        (bugs.PositionForgotten, "decoding", "step 1 after a prefill of 1 is not close: "),
        (bugs.UninitialisedState, "recurrence", "step 0 from the first state is not close: nan > 1e-09"),
        (bugs.PositionForgotten, "forms", "token by token is not close: "),
        (bugs.DetachedKeys, "gradcheck", "the gradient is not close: "),
        (bugs.DeadParameter, "live_gradients", "temperature gets no gradient"),
        (bugs.DividesByTheDecay, "extreme_inputs", "output is not finite"),
        (bugs.DocumentsMeet, "packed_documents", "a packed row is not close: "),
        (bugs.KeepsThePrompt, "state_size", "a recurrence whose state grows: "),
        (bugs.StateInPlace, "pure", "a step changed the state it was given"),
        (bugs.WeightsOfAnotherOperator, "weights", "A @ values is not close: "),
        (bugs.ReadInVain, "closed_config", "window changes nothing"),
    ],
)
def test_a_planted_bug_is_shown_as_failed(plant, mixer_class, name, words):
    plant(mixer_class)
    result = prove(PLANTED, ASK[name])
    assert result.status == "failed"
    assert words in result.text
    assert result.number is None or result.tolerance is None or result.number > result.tolerance


def test_an_operator_without_its_scale_is_seen_by_its_equations_and_its_vectors(monkeypatch):
    def wrong(q, k, v, scale):
        return softmax.reference(q, k, v, 1.0)

    wrong.reference = wrong
    monkeypatch.setattr(softmax, "attend", wrong)
    for name in ("equation", "oracle"):
        result = prove(Case("softmax", ()), ASK[name])
        assert result.status == "failed"
        assert "is not close: " in result.text


def test_an_operator_that_divides_by_its_decay_is_seen_at_the_ends_of_its_inputs(monkeypatch):
    def wrong(q, k, v, log_decay, scale):
        total = log_decay.cumsum(dim=2)
        return (scale * (q * total.exp()) @ (k * (-total).exp()).mT).tril() @ v

    monkeypatch.setattr(gla, "attend", wrong)
    assert "log_decay of -10000: output is not finite" in prove(Case("gla", ()), ASK["extreme_inputs"]).text


def test_a_second_form_that_differs_is_seen(monkeypatch):
    decay_scan = ops.decay_scan

    def wrong(*args, **kwargs):
        y, S = decay_scan(*args, **kwargs)
        return (y * 1.001 if ops.chunk_size(y.shape[2], 32) == 8 else y), S

    monkeypatch.setattr(ops, "decay_scan", wrong)
    assert "in chunks of 8 is not close: " in prove(Case("gla", ()), ASK["forms"]).text


def test_what_nobody_wrote_is_missing_and_what_cannot_be_asked_says_why(plant):
    plant(softmax.Mixer)
    for name, words in (("equation", "tests/equations/planted.py"), ("oracle", "vectors"), ("identities", "identity")):
        result = prove(PLANTED, ASK[name])
        assert (result.status, result.number) == ("missing", None)
        assert words in result.text
    assert prove(PLANTED, ASK["recurrence"]).status == "not applicable"
    assert prove(Case("gla", ()), ASK["weights"]).text == "its paper defines no attention weights"


def test_an_exemption_holds_for_what_fails_and_fails_for_what_holds(plant):
    plant(bugs.Identity)
    exempt = {("planted", "past_used"): "it looks at nothing but the token", ("planted", "lengths"): "for no reason"}
    result = prove(PLANTED, ASK["past_used"], exempt)
    assert result.status == "exempt"
    assert result.text.startswith("it looks at nothing but the token (")
    result = prove(PLANTED, ASK["lengths"], exempt)
    assert result.status == "failed"
    assert "for no reason" in result.text
    assert "take the exemption out" in result.text


def test_answers_are_the_same_bits_in_another_order_after_other_draws():
    asked = [property for property in PROPERTIES if property.name != "identities"]

    def answers(properties) -> dict[str, dict]:
        found = {p.name: prove(Case("gla", ()), p) for p in properties}
        return {name: result.model_dump(exclude={"seconds"}) for name, result in found.items()}

    torch.manual_seed(1)
    first = answers(asked)
    torch.rand(7)
    before = torch.get_rng_state()
    assert answers(reversed(asked)) == first
    assert torch.equal(before, torch.get_rng_state())


def test_every_mechanism_with_equations_has_vectors_and_identities():
    for path in sorted((ROOT / vectors.EQUATIONS).glob("[a-z]*.py")):
        assert path.stem in vectors.read()
        assert any(path.stem in modules for modules in identity_tests().values()), f"no identity uses {path.stem}"


def test_an_identity_belongs_to_the_modules_that_it_uses():
    found = {test.partition("::")[2]: modules for test, modules in identity_tests().items()}
    wanted = {"mala", "linear_attention", "inline"}
    assert wanted <= found["test_mala_is_linear_attention_plus_inline_less_the_mean"]
    assert found["test_softpick_rows"] == {"softpick", "ops"}
    assert not found["test_chunks_are_powers_of_two"] & set(impls.names())


def result(status="ok", **given) -> Result:
    plain = {"property": "lengths", "setting": "default", "status": status, "number": 7.0, "tolerance": None}
    return Result.model_validate(plain | {"text": "lengths tried", "seconds": 0.1} | given)


def proof(impl: str, *results: Result) -> Proof:
    return Proof.of(impl, {"lengths": "Rows of any length."}, results or [result()])


def test_the_gravest_answer_is_shown_and_of_equal_ones_the_largest_number():
    answers = [result(number=1.0), result(number=3.0), result("missing", number=None), result("failed", number=0.1)]
    assert record.worst(answers).status == "failed"
    assert record.worst(answers[:3]).status == "missing"
    assert record.worst(answers[:2]).number == 3.0


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("missing", 0), ("exempt", 0), ("failed", 1)])
def test_exit_codes(monkeypatch, tmp_path, capsys, status, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "prove", lambda impl: proof(impl, result(status, text="a [reason] of its own")))
    assert command.main(["softmax", "--jobs", "1"]) == code
    out = " ".join(capsys.readouterr().out.split())
    assert "a [reason] of its own" in out
    assert not list(tmp_path.iterdir())
    assert command.main(["softmax", "--record"]) == 0
    (found,) = record.read(tmp_path / "results/proofs/softmax.json")
    assert found.status == ("failed" if code else "ok")
    assert found.reason == ("lengths (default): a [reason] of its own" if code else None)


def test_a_wrong_command_is_one_sentence(capsys):
    with pytest.raises(UserError, match=r"there is no mechanism 'sofmax' in impls/; did you mean 'softmax'\?"):
        command.main(["sofmax"])
    for arguments in ([], ["softmax", "--all"], ["softmax", "--jobs", "0"]):
        with pytest.raises(SystemExit, match="2"):
            command.main(arguments)


def test_records_are_put_together_in_the_order_of_names_and_damage_is_one_sentence(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    for impl in ("gla", "based"):
        record.write(proof(impl, result("failed")))
    record.main(["gla", "based", "gla"])
    assert [found.impl for found in record.read(record.TOGETHER)] == ["based", "gla"]
    assert "based: lengths (default): lengths tried" in capsys.readouterr().out
    with pytest.raises(UserError, match=r"softmax\.json is not there; make it with"):
        record.gather(["softmax"])
    text = (record.FOLDER / "gla.json").read_text()
    for damage in (text[:-30], text.replace('"number"', '"count"'), text.replace("7.0", "NaN")):
        (record.FOLDER / "gla.json").write_text(damage)
        with pytest.raises(UserError, match=r"gla\.json is damaged"):
            record.gather(["gla"])


def test_a_mechanism_changed_in_a_copy_of_the_project_fails_and_a_new_one_misses_its_loop(tmp_path):
    """For real: in a copy whose softpick is not rectified, beside a mechanism that nobody wrote loops for."""
    quiet = shutil.ignore_patterns("__pycache__")
    for name in ("harness", "impls", "tests/equations"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=quiet)
    for path in [
        *ROOT.glob("tests/test_identities*.py"),
        *(ROOT / "tests" / n for n in ("__init__.py", "conftest.py")),
    ]:
        shutil.copyfile(path, tmp_path / "tests" / path.name)
    shutil.copyfile(vectors.STORE, tmp_path / "tests/vectors.json")
    (tmp_path / "papers").mkdir()
    module = tmp_path / "impls/softpick.py"
    right = module.read_text()
    module.write_text(right.replace("a.relu()", "a", 1))
    assert module.read_text() != right
    shutil.copyfile(ROOT / "impls/cog_attention.py", tmp_path / "impls/brand_new.py")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "harness.prove", *arguments],
            cwd=tmp_path,
            text=True,
            capture_output=True,
            check=False,
        )

    done = run("softpick", "brand_new", "--record", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    folder, written = tmp_path / "results/proofs", {"equation", "oracle", "identities"}
    for impl, bad, whole in (("softpick", "failed", "failed"), ("brand_new", "missing", "ok")):
        answer = json.loads((folder / f"{impl}.json").read_text())
        status = {found["property"]: found["status"] for found in answer["results"]}
        assert status.keys() == ASK.keys()
        assert {name for name, found in status.items() if found == bad} >= written
        assert answer["status"] == whole
    assert run("brand_new").returncode == 0


def test_unwritten_memory_is_seen_whatever_a_training_in_this_process_switched(plant):
    be_deterministic("cpu")  # as a training does: it leaves new memory as it is
    plant(bugs.UninitialisedState)
    assert prove(PLANTED, ASK["recurrence"]).status == "failed"
    assert not getattr(torch.utils.deterministic, "fill_uninitialized_memory")  # noqa: B009  unknown to type stubs
