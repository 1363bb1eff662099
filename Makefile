# What one can do here. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PEERS := target/peers
AGENTSCOPE := $(PEERS)/agentscope
PYTHON ?= python3
FUZZ_SECONDS ?= 600

.PHONY: help run test test-rust test-agentscope test-fuzz check bench fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## fold the example stream
	cargo run --release -- fold examples/weather.ndjson

test: check test-rust test-fuzz test-agentscope ## everything: checks, Rust, a short fuzz run, the peers

test-rust: ## the Rust tests, documentation included
	cargo test --workspace --all-features

test-agentscope: $(AGENTSCOPE)/ready ## against the real agentscope package
	cargo build --quiet -p turnwire -p turnwire-wires --bins --examples
	TURNWIRE="$(CURDIR)/target/debug/turnwire" \
	SAMPLES="$(CURDIR)/target/debug/examples/agentscope_samples" \
	$(AGENTSCOPE)/bin/python -m pytest -q tests/peers/agentscope

test-fuzz: ## every fuzz target for a few seconds
	fuzz/run 10

check: ## formatting, lints, documentation, licences: run it before each commit
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --all-features --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were not checked"; fi

bench: $(AGENTSCOPE)/ready ## the figures of the README, beside AgentScope in the same run
	AGENTSCOPE_PYTHON="$(CURDIR)/$(AGENTSCOPE)/bin/python" cargo bench -p turnwire-core --bench fold

fuzz: ## every fuzz target for FUZZ_SECONDS (600)
	fuzz/run $(FUZZ_SECONDS)

# Each peer has a virtual environment of its own, made again when its pins change.
$(AGENTSCOPE)/ready: tests/peers/agentscope/requirements.txt
	rm -rf $(AGENTSCOPE)
	$(PYTHON) -m venv $(AGENTSCOPE)
	$(AGENTSCOPE)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@

clean: ## remove everything that was built or installed
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts
