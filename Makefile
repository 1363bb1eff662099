# What one can do here. `make` alone lists it.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PEERS := target/peers
PYTHON ?= python3
CHROMIUM ?= /usr/bin/chromium
FUZZ_SECONDS ?= 600
SOAK_ROUNDS ?= 1000
EXAMPLES := $(CURDIR)/target/debug/examples

.PHONY: help run test test-rust test-fuzz test-peers test-agentscope test-openai test-anthropic \
	test-ag-ui test-ai-sdk test-blocks test-together test-aimock test-server-peers test-eventsource test-typescript \
	test-console console chromium peers-build check bench bench-server bench-agent bench-typescript abuse fuzz soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## fold the example stream
	cargo run --release -- fold examples/weather.ndjson

test: check test-rust test-fuzz test-peers ## everything: checks, Rust, a short fuzz run, the peers

test-rust: ## the Rust tests, documentation included
	cargo test --workspace --all-features

# The same inputs each time: what is new is for `make fuzz` to find.
test-fuzz: ## every fuzz target for a few seconds
	FUZZ_SEED=1 fuzz/run 4

test-peers: test-agentscope test-openai test-anthropic test-ag-ui test-ai-sdk test-blocks test-together test-aimock test-server-peers test-eventsource test-typescript test-console ## what the real packages and a browser say of us

test-agentscope: $(PEERS)/agentscope/ready peers-build ## against the real agentscope package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SAMPLES="$(EXAMPLES)/agentscope_samples" \
	SCENARIOS_AGENT="$(EXAMPLES)/scope_scenarios" \
	$(PEERS)/agentscope/bin/python -m pytest -q tests/peers/agentscope

test-openai: $(PEERS)/openai/ready peers-build ## against the real openai package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SCENARIOS_CHAT="$(EXAMPLES)/openai_chat_scenarios" \
	SCENARIOS_RESPONSES="$(EXAMPLES)/openai_responses_scenarios" \
	$(PEERS)/openai/bin/python -m pytest -q tests/peers/openai

test-anthropic: $(PEERS)/anthropic/ready peers-build ## against the real anthropic package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SCENARIOS_ANTHROPIC="$(EXAMPLES)/anthropic_scenarios" \
	$(PEERS)/anthropic/bin/python -m pytest -q tests/peers/anthropic

test-ag-ui: tests/peers/node/ag-ui/node_modules/ready peers-build ## against the real @ag-ui/client package
	cd tests/peers/node/ag-ui && TURNWIRE="$(CURDIR)/target/debug/turnwire" \
	SCENARIOS="$(EXAMPLES)/ag_ui_scenarios" node --test --test-reporter=spec

test-ai-sdk: tests/peers/node/ai-sdk/node_modules/ready peers-build ## against the real ai package
	cd tests/peers/node/ai-sdk && TURNWIRE="$(CURDIR)/target/debug/turnwire" \
	SCENARIOS="$(EXAMPLES)/ai_sdk_scenarios" node --test --test-reporter=spec

test-blocks: tests/peers/node/blocks/node_modules/ready peers-build ## the content-block protocol's own handler, over a real WebSocket
	cd tests/peers/node/blocks && TURNWIRE="$(CURDIR)/target/debug/turnwire" node --test --test-reporter=spec

test-together: $(addprefix tests/peers/node/,$(addsuffix /node_modules/ready,ag-ui ai-sdk blocks)) peers-build ## clients of several protocols in one conversation
	cd tests/peers/node/together && TURNWIRE="$(CURDIR)/target/debug/turnwire" node --test --test-reporter=spec

test-aimock: tests/peers/node/aimock/node_modules/ready peers-build ## our requests against a model server
	cd tests/peers/node/aimock && REQUESTS="$(EXAMPLES)/requests" ASK_MODEL="$(EXAMPLES)/ask_model" node --test --test-reporter=spec

test-server-peers: $(PEERS)/agentscope/ready peers-build ## agentscope's models on all that a server sends; the examples
	TURNWIRE="$(CURDIR)/target/debug/turnwire" \
	$(PEERS)/agentscope/bin/python -m pytest -q tests/peers/server

test-eventsource: tests/peers/node/eventsource/node_modules/ready chromium peers-build ## the package eventsource and a real Chromium watch a server
	cd tests/peers/node/eventsource && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

test-typescript: clients/typescript/node_modules/ready peers-build ## the TypeScript client against the real server
	cd clients/typescript && TURNWIRE="$(CURDIR)/target/debug/turnwire" npm test --silent

test-console: console/node_modules/ready $(addprefix tests/peers/node/,$(addsuffix /node_modules/ready,ag-ui ai-sdk)) chromium peers-build ## the console: what is built is what its source says; in a real Chromium
	cd console && npm run --silent check && npm test --silent
	cd console && npx vite build --logLevel warn --outDir ../target/console --emptyOutDir
	diff -r console/dist target/console || { echo "console/dist is not what its source builds: run make console, and commit it"; exit 1; }
	cd console && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" node --test --test-reporter=spec e2e/

console: console/node_modules/ready ## build the console that the binary serves
	cd console && npm run --silent build

# A browser is no package of Node's: where it cannot be installed, its tests are skipped, and say so.
chromium:
	@if [ -x "$(CHROMIUM)" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	else echo "there is no Chromium at $(CHROMIUM): its tests are skipped (install it, or set CHROMIUM)"; fi

peers-build:
	cargo build --quiet -p turnwire -p turnwire-wires -p turnwire-agent --bins --examples

check: ## formatting, lints, documentation, licences: run it before each commit
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --all-features --no-deps
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --log-level error check bans licenses sources; \
	else echo "cargo-deny is not installed: licences and sources were not checked"; fi

bench: $(PEERS)/agentscope/ready $(PEERS)/bench/ready bench-server ## the figures of docs/benchmarks.md, beside the packages that others use
	AGENTSCOPE_PYTHON="$(CURDIR)/$(PEERS)/agentscope/bin/python" cargo bench -p turnwire-core --bench fold
	PROVIDERS_PYTHON="$(CURDIR)/$(PEERS)/bench/bin/python" cargo bench -p turnwire-wires --bench wires

bench-server: $(PEERS)/durable-streams/ready ## the figures of the server, beside Electric's durable-streams
	DURABLE_STREAMS="$(CURDIR)/$(PEERS)/durable-streams/bin/durable-streams-server" cargo bench -p turnwire --bench server

bench-agent: $(PEERS)/agentscope/ready ## the figures of the agents that reply, beside AgentScope's
	AGENTSCOPE_PYTHON="$(CURDIR)/$(PEERS)/agentscope/bin/python" cargo bench -p turnwire-agent --bench agent
	cargo bench -p turnwire --bench server -- token-time replies-in-process replies-over-http reply-memory

bench-typescript: clients/typescript/node_modules/ready ## what the fold costs in TypeScript
	cd clients/typescript && npm run --silent bench

abuse: ## attack a server: memory and time under each attack, beside the bound (ATTACKS="NAME …" for some)
	cargo build --quiet --release -p turnwire
	TURNWIRE="$(CURDIR)/target/release/turnwire" $(PYTHON) tests/abuse/run.py $(ATTACKS)

soak: ## kill the server SOAK_ROUNDS (1000) times under load: nothing may be lost
	SOAK_ROUNDS=$(SOAK_ROUNDS) cargo test --release -p turnwire --test crash -- --nocapture nothing_is_lost

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

# Where it cannot be installed, the server is measured alone.
$(PEERS)/durable-streams/ready:
	mkdir -p $(@D)
	if cargo install --quiet --locked --root $(@D) durable-streams --version 0.1.5; then touch $@; \
	else echo "durable-streams could not be installed"; fi

$(PEERS)/%/ready: tests/peers/%/requirements.txt
	$(venv)

tests/peers/node/%/node_modules/ready: tests/peers/node/%/package-lock.json
	cd tests/peers/node/$* && npm ci --silent --no-audit --no-fund
	touch $@

clients/typescript/node_modules/ready console/node_modules/ready: %/node_modules/ready: %/package-lock.json
	cd $* && npm ci --silent --no-audit --no-fund
	touch $@

clean: ## remove everything that was built or installed
	cargo clean
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts tests/peers/node/*/node_modules \
	clients/typescript/node_modules clients/typescript/dist console/node_modules
