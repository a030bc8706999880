# make site: everything, ending in results/site/index.html.  make help: the other commands.
.DEFAULT_GOAL := help
.PHONY: help site smoke serve test chaos audit slurm lint retry lock vendor clean

# any Python from 3.11 on; PYTHON=… chooses another
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/installed
CORES ?= all

help: ## show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

$(INSTALLED): requirements.txt
	@test -x $(BIN)/python || { test -n "$(PYTHON)" || { echo "Attest needs Python 3.11 or newer on the PATH."; exit 1; }; \
	  $(PYTHON) -m venv .venv; }
	@echo "installing requirements.txt into .venv, once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --requirement requirements.txt
	@touch $@

site: $(INSTALLED) ## train, evaluate, judge, render: the profile of config/config.yaml
	@$(BIN)/snakemake --cores $(CORES)
	@echo "$(CURDIR)/results/site/index.html"

SMOKE := attention-is-all-you-need delta-net gla softpick sixteen-heads two-pass-softmax
comma := ,
empty :=

smoke: $(INSTALLED) ## the same, as small as can be, of six papers: every step, every page, no meaning
	@$(BIN)/snakemake --cores $(CORES) --config profile=smoke 'seeds=[0,1]' 'papers=[$(subst $(empty) ,$(comma),$(SMOKE))]'
	@echo "$(CURDIR)/results/site/index.html"

PORT ?= 8000

serve: $(INSTALLED) ## show the site at http://127.0.0.1:8000, to this machine alone; PORT=… chooses another port
	@test -f results/site/index.html || { echo "There is no site yet; make site makes it."; exit 1; }
	@echo "http://127.0.0.1:$(PORT)  (Ctrl-C ends it)"
	@$(BIN)/python -m http.server $(PORT) --bind 127.0.0.1 --directory results/site

test: lint ## lint, then all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

slurm: $(INSTALLED) ## run the workflow on a Slurm of two nodes, made here for that; jobs are cancelled, a node fails
	@$(BIN)/python -m tests.slurm.install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slurm tests/slurm

chaos: $(INSTALLED) ## faults in earnest and hostile input by the thousand; minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m chaos -rA tests/chaos

audit: $(INSTALLED) ## list the licence of every package, and ask PyPI for advisories on the pinned ones
	$(BIN)/python -m harness.licences
	$(BIN)/python -m harness.audit

lint: $(INSTALLED) ## style and types; snakemake --lint is one of the tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check --quiet .
	$(BIN)/pyright
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow

retry: $(INSTALLED) ## forget the failed runs and suites, so that `make site` tries them again
	@$(BIN)/python -m harness.failures --remove

lock: $(INSTALLED) ## make requirements.txt from requirements.in anew, with today's versions
	$(BIN)/python -m pip install --quiet 'pip-tools==7.6.2'
	$(BIN)/pip-compile --quiet --upgrade --strip-extras --allow-unsafe --no-header --annotation-style=line \
	  --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --output-file .venv/lock.txt requirements.in
	{ echo '# Made by `make lock` from requirements.in with Python 3.11 and a CPU build of torch; do not edit.'; \
	  sed -e 's/+cpu//' -e '/considered to be unsafe/d' -e '/^$$/d' .venv/lock.txt; } > requirements.txt

vendor: $(INSTALLED) ## make templates/vendor anew and say what changed against vendor.json
	@$(BIN)/python -m harness.vendor

clean: ## remove everything that was made, but for .venv
	rm -rf results .snakemake
