# `make help` lists what there is. GNU make 3.81 (macOS) or newer.

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

SUBMISSION ?= assignment
PY := .venv/bin/python

# Products in the kernel lab are NumPy's, and small: its threads would wait for each other.
export OPENBLAS_NUM_THREADS := 1

# Any Python 3 will do to run the set-up: it finds the one to use by itself.
BOOT := $(or $(shell command -v python3 2>/dev/null),$(PYTHON))

# $(call need,extras): .venv is made or brought up to date; takes 0.1 s when there is nothing to do.
need = $(if $(BOOT),"$(BOOT)" -IS tests/grading/environment --extras "$1",\
	echo "set-up: there is no python3: install Python 3.11 or newer, or name it: make setup PYTHON=..." >&2; exit 1)

# What only the course's full repository has: $(call full,a file or folder)
full = [ -e $1 ] || { echo "make $@: this student bundle has no $1; only the full repository does" >&2; exit 1; }
STAFF := $(wildcard tests/staff)

# `make new-problem attention.latent`: the second word is the problem's name.
ifneq ($(filter new-problem check-problem,$(firstword $(MAKECMDGOALS))),)
PROBLEM := $(or $(word 2,$(MAKECMDGOALS)),$(PROBLEM))
ifneq ($(findstring .,$(word 2,$(MAKECMDGOALS))),)
.PHONY: $(word 2,$(MAKECMDGOALS))
$(word 2,$(MAKECMDGOALS)): ; @:
endif
endif
named = case "$(PROBLEM)" in *.*) ;; *) echo "make $@: name the problem: make $@ unit.name" >&2; exit 1 ;; esac

##@ Work on the assignment

.PHONY: help
help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } \
	    /^##@ Staff/ && "$(STAFF)" == "" { exit } \
	    /^##@/ { printf "%s%s\n", (n++ ? "\n" : ""), substr($$0, 5) } \
	    /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

.PHONY: setup
setup: ## make .venv, or bring it up to date (EXTRAS=real,watch,docs,... or all; PYTHON= TORCH_INDEX=)
	@$(call need,$(EXTRAS)) --verbose

.PHONY: grade
grade: ## grade assignment/ as the course does (SUBMISSION=folder UNIT= PROBLEM= SEED=)
	@$(call need)
	@$(PY) -m tests.grading --submission "$(SUBMISSION)" $(if $(UNIT),--unit "$(UNIT)") \
	    $(foreach name,$(PROBLEM),--problem "$(name)") $(if $(SEED),--seed "$(SEED)")

.PHONY: watch
watch: ## show the next problem, run its tests at every save, give hints (UNIT= PROBLEM= SUBMISSION=)
	@$(call need,watch)
	@$(PY) -m tests.grading.watch --submission "$(SUBMISSION)" $(if $(UNIT),--unit "$(UNIT)") \
	    $(if $(PROBLEM),--problem "$(PROBLEM)")

.PHONY: test
test: ## run the tests in one process (ARGS="tests/attention/test_kv_cache.py --pdb")
	@$(call need)
	@$(PY) -m pytest $(ARGS)

.PHONY: review
review: ## print the ten review questions with your own numbers (STUDENT=your-id)
	@$(call need)
	@$(PY) -m assignment.provided.review $(if $(STUDENT),"$(STUDENT)")

##@ See it run

.PHONY: model
model: ## download SmolLM2-135M-Instruct, a small real model (about 100 MB)
	@$(call need,real)
	@$(PY) -m assignment.provided.models.smollm2

.PHONY: demo
demo: ## chat with SmolLM2, with a cache and without; MODEL=toy tells stories (PROMPT= ARGS="--seed 7")
	@$(call need,real)
	@$(PY) notebooks/demo.py $(if $(MODEL),--model "$(MODEL)") $(ARGS)

.PHONY: notebooks
notebooks: ## execute every notebook
	@$(call need,notebooks)
	@$(PY) notebooks/execute.py $(ARGS)

.PHONY: bench
bench: ## time SmolLM2 for 10 minutes (BENCH=speed, serving, speculative, compression), or a GPU (kernels)
	@$(call need,$(if $(filter kernels,$(BENCH)),,real dev))
	@for bench in $(or $(BENCH),speed serving); do $(PY) notebooks/*_"$$bench".py || exit 1; done

.PHONY: memory
memory: ## what a model takes on a chip, and its speed (MODEL=llama-3-8b CHIP=H100 LENGTH=1024 BATCH=)
	@$(call need)
	@$(PY) notebooks/memory.py $(if $(MODEL),--model "$(MODEL)") $(if $(CHIP),--chip "$(CHIP)") \
	    $(if $(LENGTH),--length "$(LENGTH)") $(if $(BATCH),--batch "$(BATCH)")

.PHONY: handout
handout: ## build handout/handout.pdf (ARGS=--check only says whether it is current)
	@$(call need,docs)
	@$(PY) handout/build.py $(ARGS)

.PHONY: clean
clean: ## remove what was built, but for .venv
	@rm -rf build .pytest_cache .ruff_cache .hypothesis
	@find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +

##@ Staff

.PHONY: stubs
stubs: ## write assignment/ from solutions/
	@$(call full,solutions)
	@$(call need)
	@$(PY) -m tests.staff.authoring.stubs

.PHONY: mutants
mutants: ## prove the suite: wrong ideas must fail, right variants must pass (UNIT= ARGS=--remember)
	@$(call full,tests/staff)
	@$(call need)
	@$(PY) -m tests.staff.authoring.mutation $(if $(UNIT),--unit "$(UNIT)") $(ARGS)

.PHONY: exploits
exploits: ## try the grader on hostile and odd submissions (ARGS="--workers 2 fork_bomb")
	@$(call full,tests/staff)
	@$(call need)
	@$(PY) -m tests.staff.exploits $(ARGS)

.PHONY: new-problem
new-problem: ## make every place that a new problem needs: make new-problem unit.name
	@$(call full,tests/staff)
	@$(named)
	@$(call need)
	@$(PY) -m tests.staff.authoring.new_problem "$(PROBLEM)"

.PHONY: check-problem
check-problem: ## check all that one problem has: make check-problem unit.name
	@$(call full,tests/staff)
	@$(named)
	@$(call need)
	@$(PY) -m tests.staff.authoring.check_problem "$(PROBLEM)"

.PHONY: weights
weights: ## train the toy models anew (half an hour; can be resumed) (ARGS="medusa" or "eagle": only that)
	@$(call full,tests/staff)
	@$(call need,real)
	@$(PY) -m tests.staff.weights $(ARGS)

.PHONY: heads
heads: ## train models with equal KV bytes, for a notebook (half an hour; can be stopped and resumed)
	@$(call full,tests/staff)
	@$(call need,real)
	@$(PY) -m tests.staff.heads

.PHONY: distil
distil: ## halve the toy target, and train the half in four ways (6 minutes; can be stopped and resumed)
	@$(call full,tests/staff)
	@$(call need,real)
	@$(PY) -m tests.staff.distilling

.PHONY: release
release: ## build the student bundle, without solutions
	@$(call full,tests/staff)
	@$(call need)
	@$(PY) -m tests.staff.authoring.release

.PHONY: readme
readme: ## write into README.md what it shows of the course and of a grade
	@$(call full,tests/staff)
	@$(call need)
	@$(PY) -m tests.staff.authoring.readme

.PHONY: lint
lint: ## ruff, and whether assignment/ and README.md are what make stubs and make readme write
	@$(call full,tests/staff)
	@$(call need,dev)
	@$(PY) -m ruff check --quiet --output-format concise
	@$(PY) -m ruff format --check --quiet --output-format concise
	@$(PY) -m tests.staff.authoring.stubs --check
	@$(PY) -m tests.staff.authoring.readme --check
	@$(PY) -m tests.staff.authoring.through_line --check
	@$(PY) -m tests.staff.authoring.pictures --check

.PHONY: constraints
constraints: ## pin the newest versions that pyproject.toml allows
	@$(call full,tests/staff)
	@$(call need)
	@$(PY) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	    { echo "make $@: needs the oldest Python: make setup PYTHON=python3.11" >&2; exit 1; }
	@$(PY) -m venv --clear build/constraints
	@build/constraints/bin/python -m pip install --quiet ".[real,watch,docs,notebooks,dev]"
	@{ sed '/^# Everything else/q' constraints.txt; \
	    build/constraints/bin/python -m pip freeze --all --exclude pip | grep -v ' @ ' | sed 's/+cpu$$//'; \
	} > build/constraints.txt
	@mv build/constraints.txt constraints.txt
	@rm -rf build/constraints
