# The only definition of each chore: people, `.ci/run` and other tools call these targets.
# Every target uses .venv in this folder and makes it when it is missing; stamp files skip what is up to date.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
# CI builds exactly what Cargo.lock says; a person editing Cargo.toml should not have to say so.
LOCKED := $(if $(CI),--locked)
PEERS ?= agtape,torch,torch_fused,jax,tinygrad,ferrotensor
ROUNDS ?= 6
# Folders are listed too, so that a deleted file also makes the wheel out of date.
SOURCES := Cargo.toml pyproject.toml README.md $(wildcard Cargo.lock build.rs) \
	$(shell find src python shaders -name __pycache__ -prune -o -print 2>/dev/null)

.PHONY: help setup vulkan demo test lint format bench conformance docs clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/wheel.stamp $(VENV)/test.stamp ## make .venv with agtape and what the tests need

demo: $(VENV)/wheel.stamp $(VENV)/demo.stamp ## train on real handwritten digits and show what the tape held
	$(PY) examples/mnist.py

vulkan: ## install Mesa's software Vulkan where there is no driver at all and apt can do it: the tests run every op on it
	bash .ci/vulkan

test: setup vulkan ## cargo tests, then pytest against the installed wheel
	cargo test --profile quick $(LOCKED)
	$(PY) -m pytest tests

lint: $(VENV)/test.stamp ## formatting and warnings, Rust and Python; changes nothing
	cargo fmt --check
	cargo clippy --all-targets $(LOCKED) -- -D warnings
	cargo clippy --all-targets --features python $(LOCKED) -- -D warnings
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/test.stamp ## format Rust and Python in place
	cargo fmt
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

bench: setup $(VENV)/bench.stamp ## criterion for kernels, what recording and planning cost, then steps side by side with other libraries
	cargo bench $(LOCKED)
	$(PY) benches/overhead.py
	$(PY) benches/steady.py
	cd benches/peers && ../../$(PY) run.py --device cpu --peers $(PEERS) --rounds $(ROUNDS) --json ../../target/peers.json

conformance: setup $(VENV)/conformance.stamp ## judge every op by torch as well, and write docs/conformance.md
	$(PY) tests/conformance/run.py --write docs/conformance.md

docs: ## API documentation of the Rust engine, warnings are errors
	RUSTDOCFLAGS="-D warnings" cargo doc --no-deps $(LOCKED)
	@echo "open target/doc/agtape/index.html"

clean: ## remove what these targets made
	rm -rf target $(VENV) out

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else "agtape needs Python 3.11 or later: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/build.stamp: requirements/build.txt $(VENV)/made.stamp
	$(PIP) -r $<
	@touch $@

# The wheel folder is emptied first, so that it never offers two versions. numpy comes with the first install;
# --force-reinstall --no-deps then replaces agtape alone, whose version stays the same while it is worked on.
$(VENV)/wheel.stamp: $(SOURCES) $(VENV)/build.stamp
	rm -rf $(VENV)/wheels
	$(VENV)/bin/maturin build --release $(LOCKED) --interpreter $(PY) --out $(VENV)/wheels
	$(PIP) $(VENV)/wheels/*.whl
	$(PIP) --force-reinstall --no-deps $(VENV)/wheels/*.whl
	@touch $@

$(VENV)/test.stamp: requirements/test.txt requirements/demo.txt $(VENV)/made.stamp
	$(PIP) -r $<
	@touch $@

$(VENV)/conformance.stamp: requirements/conformance.txt $(VENV)/test.stamp
	$(PIP) -r $<
	@touch $@

$(VENV)/demo.stamp $(VENV)/bench.stamp: $(VENV)/%.stamp: requirements/%.txt $(VENV)/made.stamp
	$(PIP) -r $<
	@touch $@
