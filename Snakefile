# Attest: corpus → train → evaluate → aggregate → judge → site.
#
# What is asked for comes from config/ and papers/ through harness.plan; the rules lie in workflow/rules.
# Every job is a command that can be run by hand: python -m harness.<step> --help

import os
import shlex
import shutil
import sys

from snakemake.utils import min_version

from harness import dependencies, lock, outlook, parent, status
from harness.errors import UserError
from harness.plan import Plan

min_version("9.0")

try:
    PLAN = Plan.load(config)
except UserError as error:
    sys.exit(str(error))

# jobs use the Python that runs Snakemake, whether its environment is activated or not, and end with it (harness.parent);
# and no more threads than Snakemake gives them: it tells OpenMP and the like, and not the tokenizer's pool
BIN = shlex.quote(os.path.dirname(sys.executable))
shell.prefix(
    f"set -euo pipefail; PATH={BIN}:$PATH; export RAYON_NUM_THREADS=$OMP_NUM_THREADS"
    f" {parent.VARIABLE}={os.getpid()}; exec "
)


NOTHING = "(?!)"  # a pattern that matches no name


wildcard_constraints:
    corpus=PLAN.profile.data.folder.name,
    run="|".join(PLAN.runs),
    task="|".join(PLAN.profile.tasks),
    suite="|".join(PLAN.config.suites),
    impl="|".join(PLAN.impls()),
    seed="|".join(map(str, PLAN.config.seeds)),


localrules:
    all,
    aggregate,
    judge,
    history,
    proofs,
    site,
    strict,


include: "workflow/rules/data.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/study.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/prove.smk"
include: "workflow/rules/report.smk"


rule all:
    default_target: True
    input:
        rules.site.output,
        rules.aggregate.output,
        rules.costs.output,
        rules.judge.output,
        rules.history.output,
        rules.proofs.output,
        PLAN.records() + PLAN.proofs(),  # one that is removed is made again
        rules.strict.output if PLAN.config.strict else [],
    message:
        "all done"


onstart:
    try:
        lock.hold(".snakemake/attest.lock")
    except UserError as error:
        sys.exit(str(error))
    for note in outlook.notes(PLAN):
        print(note, file=sys.stderr, flush=True)
    status.tell(PLAN)


onsuccess:
    print(status.said(PLAN))
    print(f"Open {os.path.abspath('results/site/index.html')}")


onerror:
    if shutil.disk_usage("results").free < 2**16:  # so that the logs, which lie there, may lack the reason
        print("There is no space left on the disk of results; free some.")
    print(status.said(PLAN))
    print("Not done. The log of each job that failed is named above; the same command goes on from here.")
