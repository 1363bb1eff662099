# What one can do here. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PEERS := target/peers
PYTHON ?= python3
FUZZ_SECONDS ?= 600
EXAMPLES := $(CURDIR)/target/debug/examples

.PHONY: help run test test-rust test-fuzz test-peers test-agentscope test-openai test-anthropic \
	test-ag-ui test-ai-sdk test-aimock peers-build check bench fuzz clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## fold the example stream
	cargo run --release -- fold examples/weather.ndjson

test: check test-rust test-fuzz test-peers ## everything: checks, Rust, a short fuzz run, the peers

test-rust: ## the Rust tests, documentation included
	cargo test --workspace --all-features

# The same inputs each time: what is new is for `make fuzz` to find.
test-fuzz: ## every fuzz target for a few seconds
	FUZZ_SEED=1 fuzz/run 4

test-peers: test-agentscope test-openai test-anthropic test-ag-ui test-ai-sdk test-aimock ## what the real packages say of us

test-agentscope: $(PEERS)/agentscope/ready peers-build ## against the real agentscope package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SAMPLES="$(EXAMPLES)/agentscope_samples" \
	$(PEERS)/agentscope/bin/python -m pytest -q tests/peers/agentscope

test-openai: $(PEERS)/openai/ready peers-build ## against the real openai package
	SCENARIOS_CHAT="$(EXAMPLES)/openai_chat_scenarios" \
	SCENARIOS_RESPONSES="$(EXAMPLES)/openai_responses_scenarios" \
	$(PEERS)/openai/bin/python -m pytest -q tests/peers/openai

test-anthropic: $(PEERS)/anthropic/ready peers-build ## against the real anthropic package
	SCENARIOS_ANTHROPIC="$(EXAMPLES)/anthropic_scenarios" \
	$(PEERS)/anthropic/bin/python -m pytest -q tests/peers/anthropic

test-ag-ui: tests/peers/node/ag-ui/node_modules/ready peers-build ## against the real @ag-ui/client package
	cd tests/peers/node/ag-ui && SCENARIOS="$(EXAMPLES)/ag_ui_scenarios" node --test --test-reporter=spec

test-ai-sdk: tests/peers/node/ai-sdk/node_modules/ready peers-build ## against the real ai package
	cd tests/peers/node/ai-sdk && SCENARIOS="$(EXAMPLES)/ai_sdk_scenarios" node --test --test-reporter=spec

test-aimock: tests/peers/node/aimock/node_modules/ready peers-build ## our requests against a model server
	cd tests/peers/node/aimock && REQUESTS="$(EXAMPLES)/requests" node --test --test-reporter=spec

peers-build:
	cargo build --quiet -p turnwire -p turnwire-wires --bins --examples

check: ## formatting, lints, documentation, licences: run it before each commit
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --all-features --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were not checked"; fi

bench: $(PEERS)/agentscope/ready $(PEERS)/bench/ready ## the figures of the README, beside the packages that others use
	AGENTSCOPE_PYTHON="$(CURDIR)/$(PEERS)/agentscope/bin/python" cargo bench -p turnwire-core --bench fold
	PROVIDERS_PYTHON="$(CURDIR)/$(PEERS)/bench/bin/python" cargo bench -p turnwire-wires --bench wires

fuzz: ## every fuzz target for FUZZ_SECONDS (600)
	fuzz/run $(FUZZ_SECONDS)

# Each peer has an environment of its own, made again when its pins change.
define venv
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@
endef

$(PEERS)/bench/ready: tests/bench/requirements.txt
	$(venv)

$(PEERS)/%/ready: tests/peers/%/requirements.txt
	$(venv)

tests/peers/node/%/node_modules/ready: tests/peers/node/%/package-lock.json
	cd tests/peers/node/$* && npm ci --silent --no-audit --no-fund
	touch $@

clean: ## remove everything that was built or installed
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts tests/peers/node/*/node_modules
