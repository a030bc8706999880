"""Public failure reports on Snakemake, training harnesses and YAML specs, each with the tests that hold it off.

The reports lie beside the checkout, `shared/pitfalls`: its sections (e), (f) and (g).
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.conftest import SHARED

LIST = SHARED / "pitfalls" / "pitfalls.md"
TESTS = Path(__file__).parent
RULES = sorted((TESTS.parent / "workflow" / "rules").glob("*.smk"))
MINE = "test_pitfalls_harness.py"
YAML = ("test_yamlio.py::test_a_fault_is_one_sentence_with_its_line", "test_neutral.py::test_a_neutral_spec")
SPEC = ("test_specs.py::test_a_fault_has_its_line_and_the_nearest_name", "test_neutral.py::test_a_neutral_spec")

TESTED: dict[str, tuple[str, ...]] = {
    "E06": (f"{MINE}::test_every_job_is_a_command", "test_workflow.py::test_what_an_edit_reruns"),
    "E08": (
        f"{MINE}::test_the_state_of_a_run_is_nothing_that_snakemake_removes",
        "test_workflow_kills.py::test_a_killed_trainer_goes_on_and_ends_in_the_same_weights",
    ),
    "E09": (
        "test_files.py::test_a_write_makes_folders_and_leaves_nothing_else",
        "chaos/test_kills.py::test_kills_at_random_moments_change_no_byte",
    ),
    "E12": (
        "test_device.py::test_slots_against_public_failure_reports",
        "test_device.py::test_a_killed_job_frees_its_gpu",
    ),
    "E13": (
        f"{MINE}::test_a_wildcard_is_one_part_of_a_path_and_one_of_a_list",
        "test_runs.py::test_a_run_has_the_form_of_a_file_name",
    ),
    "E14": ("test_config.py::test_overrides_of_a_command_line_are_typed",),
    "E15": (f"{MINE}::test_every_job_is_a_command",),
    "E18": (
        "chaos/test_machine.py::test_a_disk_too_full_for_snakemakes_own_notes_starts_nothing_that_depends_on_them",
        "chaos/test_machine.py::test_a_full_disk_stops_the_build_and_harms_nothing",
    ),
    "E19": (
        "test_runs.py::test_a_run_has_the_form_of_a_file_name",
        "test_runs.py::test_numbers_have_one_spelling",
    ),
    "E20": (
        "test_site.py::test_ids_are_unique_and_pages_small",
        "test_site.py::test_published_failures_of_static_sites",
    ),
    "E21": ("chaos/test_kills.py::test_kills_at_random_moments_change_no_byte",),  # configuration and papers among them
    "E22": ("test_aggregate.py::test_versions_that_differ_are_said",),
    "F01": (
        "test_fit.py::test_resuming_against_public_failure_reports",
        "test_fit.py::test_any_cuts_give_the_same_weights_and_the_same_curve",
    ),
    "F02": (
        "test_fit.py::test_a_mechanism_that_draws_numbers_in_training_resumes_with_the_same_ones",
        "test_fit.py::test_a_damaged_state_is_refused_with_its_name",
    ),
    "F05": (
        "test_fit.py::test_no_mean_is_made_around_what_is_not_finite",
        "test_fit.py::test_a_loss_that_is_no_number_ends_the_run_at_its_step",
    ),
    "F06": (
        "test_fit.py::test_losses_against_public_failure_reports",
        "test_fit.py::test_micro_batches_give_the_gradient_of_the_whole_batch",
    ),
    "F07": (
        "test_fit.py::test_losses_against_public_failure_reports",
        "test_fit.py::test_ignored_targets_count_neither_above_nor_below",
    ),
    "F08": ("test_fit.py::test_bits_per_byte_are_nats_over_bytes_and_leave_mode_and_generator_alone",),
    "F09": (
        "test_model.py::test_wiring_against_public_failure_reports",
        "test_model.py::test_groups_hold_every_parameter_once_and_decay_matrices_alone",
    ),
    "F11": (
        "test_fit.py::test_a_loss_that_is_no_number_ends_the_run_at_its_step",
        "test_fit.py::test_a_gradient_that_is_no_number_ends_the_run_before_it_is_applied",
    ),
    "G02": ("test_yamlio.py::test_a_value_is_read_as_it_stands", "test_neutral.py::test_a_neutral_spec"),
    "G04": YAML,
    "G05": SPEC,
    "G07": YAML,
    "G08": ("test_yamlio.py::test_a_value_is_read_as_it_stands",),
    "G09": ("test_specs.py::test_a_file_that_is_no_slug_is_refused", *SPEC),
    "G11": ("test_lmeval.py::test_a_generation_that_would_mean_something_else_is_refused_before_any",),
    "G12": YAML,
    "G13": (*YAML, "test_yamlio.py::test_a_tag_runs_nothing"),
}


@pytest.mark.parametrize("case", TESTED)
def test_what_a_case_names_exists(case: str):
    for item in TESTED[case]:
        file, _, function = item.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        assert function in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, item


def test_every_listed_case_has_a_test():
    if not LIST.is_file():
        pytest.skip(f"no list of failures at {LIST}")
    listed = re.findall(r"^\| ([EFG]\d\d) \|", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(TESTED) == sorted(listed)


def test_every_job_is_a_command():
    """No `script:` or `run:`, whose text is a reason to run again, and no checkpoint: the jobs are known before."""
    for path in RULES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(checkpoint|script|run|notebook|wrapper)\b.*:\s*$", text, re.MULTILINE), path.name
        assert text.count("\nrule ") + text.startswith("rule ") == len(re.findall(r"^    shell:$", text, re.MULTILINE))


def test_the_state_of_a_run_is_nothing_that_snakemake_removes():
    """Snakemake removes the outputs of a job that failed; resume states are no output, and no output is a folder."""
    for path in RULES:
        text = path.read_text(encoding="utf-8")
        assert "directory(" not in text, path.name
        assert "results/state" not in text, path.name


def test_a_wildcard_is_one_part_of_a_path_and_one_of_a_list():
    known = "|".join(("corpus", "run", "task", "suite", "impl", "seed"))
    snakefile = (TESTS.parent / "Snakefile").read_text(encoding="utf-8")
    for name in known.split("|"):
        assert re.search(rf"^    {name}=", snakefile, re.MULTILINE), f"{name} may be anything"
    for path in RULES:
        for place in re.findall(r'"(results/[^"]*\{[^"]*)"', path.read_text(encoding="utf-8")):
            plain = place.replace("{{", "{").replace("}}", "}")
            assert set(re.findall(r"{(\w+)}", plain)) <= {*known.split("|"), "kind"}, place
            if "results/log" not in plain and "results/benchmark" not in plain:  # names that nobody reads back
                assert all(part.count("{") <= 1 for part in plain.split("/")), place
