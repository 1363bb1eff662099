# The commands of this repository. `make` alone lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PEERS := target/peers
PYTHON ?= python3
CHROMIUM ?= /usr/bin/chromium
FUZZ_SECONDS ?= 600
SOAK_ROUNDS ?= 1000
CLUSTER_ROUNDS ?= 200
FAILOVERS ?= 10
EXAMPLES := $(CURDIR)/target/debug/examples
# The examples that are npm packages.
PAGES := $(addprefix examples/,react-chat ai-sdk-chat ag-ui-page)
BIOME := tools/typescript/node_modules/.bin/biome

# Checks that cannot run on this machine add a line here, and `make test` lists them at its end. With
# TURNWIRE_REQUIRE_ALL=1, as in CI, such a check fails instead. The tests read both variables.
export TURNWIRE_SKIPS := $(CURDIR)/target/skips
skip = mkdir -p target && echo "skipped: $(1): $(2)" | tee -a "$(TURNWIRE_SKIPS)"
must_not_skip = if [ "$${TURNWIRE_REQUIRE_ALL:-}" = 1 ]; then echo "$(1) is required: $(2)"; exit 1; fi

pytest = PYTHONPATH=tests/peers $(PEERS)/$(1)/bin/python -m pytest -q -p skips

.PHONY: help run test test-rust test-server-on-postgres test-fuzz test-peers test-agentscope test-openai test-openapi test-anthropic test-stateless test-clients test-copilotkit \
	test-ag-ui test-ai-sdk test-blocks test-together test-aimock test-server-peers test-eventsource test-browser-clients test-tutorial test-typescript test-python test-examples bench-python check-python \
	test-console test-deploy test-dist dist dist-again bench-dist deploy-example console console-shots console-figures chromium postgres faketime nginx peers-build check check-rust check-typescript check-packages check-dependencies api-record format bench bench-server bench-cluster bench-before bench-agent bench-typescript abuse fuzz soak clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## fold the example stream
	cargo run --release -- fold examples/weather.ndjson

# CI ends with the summaries of the test runners: there only cargo-deny may be skipped, and says so itself.
test: ## everything: checks, Rust, a short fuzz run, the peers; lists what this machine cannot test
	@mkdir -p target && : > "$(TURNWIRE_SKIPS)"
	@$(MAKE) --no-print-directory check test-rust test-server-on-postgres test-fuzz test-peers
	@if [ "$${TURNWIRE_REQUIRE_ALL:-}" != 1 ] && [ -s "$(TURNWIRE_SKIPS)" ]; then \
	echo "$$(sort -u "$(TURNWIRE_SKIPS)" | wc -l) checks could not run here:"; sort -u "$(TURNWIRE_SKIPS)"; fi

test-rust: postgres faketime ## the Rust tests, documentation included
	cargo test --workspace --all-features

test-server-on-postgres: postgres ## the tests of the server once more, with their sessions in Postgres instead of memory
	TURNWIRE_TEST_STORE=postgres cargo test --workspace --all-features --test authorization --test fair --test hostile \
	--test infra --test ingest --test links --test protocols --test resume --test sessions --test stopping --test streams --test turns

# The tests start them in folders and on ports of their own. Where they cannot be installed, their tests are skipped.
postgres:
	@if { command -v initdb || ls /usr/lib/postgresql/*/bin/initdb; } >/dev/null 2>&1 && { command -v pgbouncer || ls /usr/sbin/pgbouncer; } >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq postgresql pgbouncer >/dev/null; \
	else $(call must_not_skip,Postgres and pgbouncer,install them); fi

# Changes the clocks of nodes.
faketime:
	@if ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq faketime >/dev/null; \
	else $(call must_not_skip,libfaketime,install the package faketime); fi

nginx:
	@if { command -v nginx || ls /usr/sbin/nginx; } >/dev/null 2>&1; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq nginx-light >/dev/null; \
	else $(call must_not_skip,nginx,install it); fi

# Status 3: a program is not installed.
test-deploy: postgres nginx peers-build ## the example in deploy/: three nodes behind nginx, one is killed in the middle of a reply
	@TURNWIRE="$(CURDIR)/target/debug/turnwire" deploy/test || { [ $$? = 3 ] || exit 1; \
	$(call must_not_skip,the example in deploy/,install Postgres and nginx); \
	$(call skip,the example in deploy/,Postgres or nginx is not installed); }

deploy-example: ## run Postgres, three nodes and nginx on this machine until Ctrl-C
	cargo build --release -p turnwire
	@TURNWIRE="$(CURDIR)/target/release/turnwire" deploy/run

# PROGRAM=target/debug/turnwire takes a program that is compiled already, for a quick look at the packages.
dist: console/node_modules/ready $(PEERS)/packages/ready ## build the packages in target/packages: tar.gz, Debian, npm, Python wheel, bill of materials, checksums
	PATH="$(CURDIR)/$(PEERS)/packages/bin:$$PATH" packaging/build $(if $(PROGRAM),--program "$(PROGRAM)")

# Not part of `make test`: the optimised build is long.
test-dist: dist ## install each package into an empty environment, use it, remove it
	PACKAGES="$(CURDIR)/target/packages" $(PEERS)/packages/bin/python -B tests/packages/test_packages.py

dist-again: dist ## build the packages again from a clean checkout in another folder: they must be the same bytes
	rm -rf target/checkout && git clone --quiet . target/checkout
	$(MAKE) -C target/checkout dist
	diff target/packages/SHA256SUMS target/checkout/target/packages/SHA256SUMS
	rm -rf target/checkout

bench-dist: dist ## the figures of the packages: sizes, start of the server, install to first reply
	PACKAGES="$(CURDIR)/target/packages" $(PEERS)/packages/bin/python -B tests/packages/figures.py

# The same inputs each time: `make fuzz` looks for new ones.
test-fuzz: ## every fuzz target for a few seconds
	FUZZ_SEED=1 fuzz/run 4

test-peers: test-agentscope test-openai test-openapi test-anthropic test-stateless test-ag-ui test-ai-sdk test-blocks test-together test-aimock test-server-peers test-eventsource test-browser-clients test-tutorial test-typescript test-python test-examples test-console test-deploy ## the real packages of other projects, and a browser, against Turnwire

test-agentscope: $(PEERS)/agentscope/ready peers-build ## against the real agentscope package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SAMPLES="$(EXAMPLES)/agentscope_samples" \
	SCENARIOS_AGENT="$(EXAMPLES)/scope_scenarios" \
	$(call pytest,agentscope) tests/peers/agentscope

test-openai: $(PEERS)/openai/ready peers-build ## against the real openai package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SCENARIOS_CHAT="$(EXAMPLES)/openai_chat_scenarios" \
	SCENARIOS_RESPONSES="$(EXAMPLES)/openai_responses_scenarios" \
	$(call pytest,openai) tests/peers/openai

test-openapi: $(PEERS)/openapi/ready peers-build ## /openapi.json: a public validator, and a generated client on a real server
	TURNWIRE="$(CURDIR)/target/debug/turnwire" $(call pytest,openapi) tests/peers/openapi

test-anthropic: $(PEERS)/anthropic/ready peers-build ## against the real anthropic package
	TURNWIRE="$(CURDIR)/target/debug/turnwire" SCENARIOS_ANTHROPIC="$(EXAMPLES)/anthropic_scenarios" \
	$(call pytest,anthropic) tests/peers/anthropic

test-stateless: $(PEERS)/stateless/ready tests/peers/node/stateless/node_modules/ready peers-build ## clients that keep their own history, with Turnwire in front of a provider and without
	TURNWIRE="$(CURDIR)/target/debug/turnwire" $(call pytest,stateless) --numprocesses=auto --dist=loadgroup tests/peers/stateless

# Not part of `make test`: the programs are large, and each starts many times.
test-clients: test-copilotkit $(PEERS)/stateless/ready tests/peers/node/programs/node_modules/ready peers-build ## CopilotKit, and coding assistants that do a task, with Turnwire in front of a provider and without, and while it is killed
	TURNWIRE="$(CURDIR)/target/debug/turnwire" $(call pytest,stateless) tests/peers/programs

test-copilotkit: $(addprefix tests/peers/node/,$(addsuffix /node_modules/ready,browser copilotkit)) chromium peers-build
	cd tests/peers/node/copilotkit && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

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

test-aimock: tests/peers/node/aimock/node_modules/ready peers-build ## the requests of our model APIs against a mock provider
	cd tests/peers/node/aimock && REQUESTS="$(EXAMPLES)/requests" ASK_MODEL="$(EXAMPLES)/ask_model" node --test --test-reporter=spec

test-server-peers: $(PEERS)/agentscope/ready peers-build ## AgentScope's classes read everything that a server sends; the examples run
	TURNWIRE="$(CURDIR)/target/debug/turnwire" \
	$(call pytest,agentscope) tests/peers/server

test-eventsource: tests/peers/node/eventsource/node_modules/ready chromium peers-build ## the package eventsource and a real Chromium follow a session
	cd tests/peers/node/eventsource && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

test-browser-clients: tests/peers/node/browser/node_modules/ready chromium peers-build ## chat front ends of other projects in a real Chromium
	cd tests/peers/node/browser && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

test-tutorial: tests/peers/node/eventsource/node_modules/ready chromium postgres peers-build ## docs/tutorial.md: its commands in real terminals, its front end in a real Chromium, a fake provider, a real Postgres
	cd tests/peers/node/tutorial && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

test-typescript: clients/typescript/node_modules/ready peers-build ## the TypeScript client against the real server
	cd clients/typescript && TURNWIRE="$(CURDIR)/target/debug/turnwire" npm test --silent

test-python: $(PEERS)/python/ready peers-build ## the Python package: its native module, types, client and publisher, with the real frameworks and the real server
	$(call python_wheel,dev,python)
	cd clients/python && TURNWIRE="$(CURDIR)/target/debug/turnwire" PYTHONPATH="$(CURDIR)/tests/peers" $(CURDIR)/$(PEERS)/python/bin/python -m pytest -q -p skips

# Builds the wheel with this profile of Cargo, and installs it into the environment of this peer. Its Cargo workspace is its own.
# With PYTHON_BINARY, the path of a turnwire binary, the wheel carries it.
python_wheel = rm -rf $(PEERS)/python/wheels clients/python/python/turnwire/bin && cd clients/python && \
	{ [ -z "$${PYTHON_BINARY:-}" ] || install -D -m 755 "$$PYTHON_BINARY" python/turnwire/bin/turnwire; } && \
	PATH="$(CURDIR)/$(PEERS)/python/bin:$$PATH" CARGO_TARGET_DIR="$(CURDIR)/target/python" \
	maturin build --quiet --locked --profile $(1) --compatibility linux --out "$(CURDIR)/$(PEERS)/python/wheels" && \
	"$(CURDIR)/$(PEERS)/$(2)/bin/pip" install --quiet --disable-pip-version-check --no-deps --force-reinstall "$(CURDIR)"/$(PEERS)/python/wheels/*.whl

# The React chat imports the TypeScript client as it is now.
test-examples: $(PEERS)/python/ready $(PEERS)/examples/ready $(addsuffix /node_modules/ready,$(PAGES) tests/peers/node/browser) chromium peers-build ## the examples, started by the commands of their READMEs: the services with the real agentscope package, the pages in a real Chromium
	$(call python_wheel,dev,examples)
	TURNWIRE="$(CURDIR)/target/debug/turnwire" $(call pytest,examples) tests/peers/examples
	cd clients/typescript && npm run --silent build
	cd tests/peers/node/examples && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" \
	node --test --test-reporter=spec

test-console: console/node_modules/ready $(addprefix tests/peers/node/,$(addsuffix /node_modules/ready,ag-ui ai-sdk)) chromium peers-build ## the console: console/dist is up to date, and works in a real Chromium
	cd console && npm run --silent check && npm test --silent
	cd console && npx vite build --logLevel warn --outDir ../target/console --emptyOutDir
	diff -r console/dist target/console || { echo "console/dist is out of date: run make console and commit it"; exit 1; }
	cd console && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" node --test --test-reporter=spec e2e/

console-shots: console/node_modules/ready chromium ## pictures of the console's main states at three widths, in target/console-shots: look at them
	cargo build --quiet -p turnwire
	cd console && TURNWIRE="$(CURDIR)/target/debug/turnwire" CHROMIUM="$(CHROMIUM)" node e2e/shots.mjs

console-figures: console/node_modules/ready chromium ## measure the console: scripts, paint, long tasks, many events and sessions
	cargo build --quiet --release -p turnwire
	cd console && TURNWIRE="$(CURDIR)/target/release/turnwire" CHROMIUM="$(CHROMIUM)" node e2e/figures.mjs

console: console/node_modules/ready ## build the console that the binary serves
	cd console && npm run --silent build

# A browser is not an npm package. Where it cannot be installed, its tests are skipped.
chromium:
	@if [ -x "$(CHROMIUM)" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium >/dev/null; \
	else $(call must_not_skip,Chromium,install it or set CHROMIUM); fi

peers-build:
	cargo build --quiet -p turnwire -p turnwire-wires -p turnwire-agent --bins --examples

check: check-rust check-typescript check-python check-packages check-dependencies ## formatting, lints, documentation, public API, packages, licences: run it before each commit

check-rust:
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	$(call check_features,turnwire-log)
	$(call check_features,turnwire-agent)
	$(call check_features,turnwire-agent --features http)
	$(call check_features,turnwire-server)
	$(call check_features,turnwire)
	$(call check_features,embed)
	$(doc)
	$(PYTHON) tools/public-api/check.py

# A crate by itself, without its default features: cargo builds the features of all crates of the workspace together, so the
# line above does not find what is missing without one.
check_features = cargo clippy --quiet --no-default-features -p $(1) -- -D warnings

doc = RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --all-features --no-deps

api-record: ## record the public API of the crates, after a change that is meant
	$(doc)
	$(PYTHON) tools/public-api/check.py --record

check-typescript: tools/typescript/node_modules/ready
	$(BIOME) ci --colors=off --error-on-warnings --max-diagnostics=50

check-python: $(PEERS)/python/ready
	cargo fmt --manifest-path clients/python/Cargo.toml --check
	CARGO_TARGET_DIR="$(CURDIR)/target/python" cargo clippy --quiet --locked --manifest-path clients/python/Cargo.toml -- -D warnings
	cd clients/python && $(call ruff,format --check) && $(call ruff,check)
	PATH="$(CURDIR)/$(PEERS)/python/bin:$$PATH" python clients/python/tools/unasync.py --check

# In clients/python: on the package, the examples and their tests, with the rules of the package.
ruff = "$(CURDIR)/$(PEERS)/python/bin/ruff" $(1) --quiet --config pyproject.toml . ../../examples/*/ ../../tests/peers/examples

# What would be published, without compiling it again: metadata, files, and dependencies that have a version.
check-packages:
	@cargo package --quiet --workspace --exclude turnwire-testkit --exclude turnwire-faults --exclude embed --no-verify --allow-dirty

check-dependencies:
	@if ! cargo deny --version >/dev/null 2>&1; then \
	$(call skip,licences and sources and advisories of dependencies,cargo-deny is not installed); \
	else cargo deny --log-level error check bans licenses sources; \
	if cargo deny --log-level error fetch db; then cargo deny --log-level error check --disable-fetch advisories; \
	else $(call skip,advisories of dependencies,the advisory database cannot be fetched); fi; fi

format: tools/typescript/node_modules/ready $(PEERS)/python/ready ## format all code
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	cargo fmt --manifest-path clients/python/Cargo.toml
	cd clients/python && $(call ruff,format)
	$(BIOME) check --colors=off --write

bench: $(PEERS)/agentscope/ready $(PEERS)/bench/ready bench-server ## the figures of docs/benchmarks.md, beside the packages that others use
	AGENTSCOPE_PYTHON="$(CURDIR)/$(PEERS)/agentscope/bin/python" cargo bench -p turnwire-core --bench fold
	PROVIDERS_PYTHON="$(CURDIR)/$(PEERS)/bench/bin/python" cargo bench -p turnwire-wires --bench wires

bench-server: $(PEERS)/durable-streams/ready ## the figures of the server, beside Electric's durable-streams
	DURABLE_STREAMS="$(CURDIR)/$(PEERS)/durable-streams/bin/durable-streams-server" cargo bench -p turnwire --bench server

bench-cluster: postgres ## the figures of several nodes over Postgres, beside pgbench
	cargo bench -p turnwire --bench server -- cluster-ingest cluster-nodes cluster-latency cluster-takeover cluster-idle cluster-sizing

bench-before: ## the figures of a server beside those of an earlier version: BEFORE=COMMIT
	git worktree add --force --detach target/before "$(BEFORE)"
	cargo build --profile bench --manifest-path target/before/Cargo.toml -p turnwire --target-dir target/before-build
	TURNWIRE_BEFORE="$(CURDIR)/target/before-build/release/turnwire" cargo bench -p turnwire --bench server -- before
	git worktree remove --force target/before

bench-agent: $(PEERS)/agentscope/ready ## the figures of the agents that reply, beside AgentScope's
	AGENTSCOPE_PYTHON="$(CURDIR)/$(PEERS)/agentscope/bin/python" cargo bench -p turnwire-agent --bench agent
	cargo bench -p turnwire --bench server -- token-time first-token replies-in-process replies-over-http reply-memory

bench-typescript: clients/typescript/node_modules/ready ## the cost of the fold in TypeScript
	cd clients/typescript && npm run --silent bench

bench-python: $(PEERS)/python/ready ## the fold in Python beside AgentScope's, and the cost of publishing
	cargo build --quiet --release -p turnwire
	$(call python_wheel,release,python)
	TURNWIRE="$(CURDIR)/target/release/turnwire" $(CURDIR)/$(PEERS)/python/bin/python clients/python/bench/bench.py

abuse: ## attack a server: memory and time under each attack, beside the bound (ATTACKS="NAME …" for some)
	cargo build --quiet --release -p turnwire
	TURNWIRE="$(CURDIR)/target/release/turnwire" $(PYTHON) tests/abuse/run.py $(ATTACKS)

soak: ## kill the server SOAK_ROUNDS (1000) times under load, disturb a cluster CLUSTER_ROUNDS (200) times, fail its database over FAILOVERS (10) times: nothing may be lost
	SOAK_ROUNDS=$(SOAK_ROUNDS) cargo test --release -p turnwire --test crash -- --nocapture nothing_is_lost
	CLUSTER_ROUNDS=$(CLUSTER_ROUNDS) FAILOVERS=$(FAILOVERS) cargo test --release -p turnwire --test cluster -- \
	--nocapture --test-threads=1 under_random_faults fails_over

fuzz: ## every fuzz target for FUZZ_SECONDS (600)
	fuzz/run $(FUZZ_SECONDS)

# Each peer has its own environment, rebuilt when its pinned versions change.
define venv
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r $<
	touch $@
endef

$(PEERS)/bench/ready: tests/bench/requirements.txt
	$(venv)

$(PEERS)/packages/ready: tests/packages/requirements.txt
	$(venv)

# Where it cannot be installed, the server is measured alone.
$(PEERS)/durable-streams/ready:
	mkdir -p $(@D)
	if cargo install --quiet --locked --root $(@D) durable-streams --version 0.1.5; then touch $@; \
	else echo "durable-streams could not be installed"; fi

$(PEERS)/python/ready: clients/python/tests/requirements.txt
	$(venv)

$(PEERS)/%/ready: tests/peers/%/requirements.txt
	$(venv)

# Some of the programs' packages for other platforms are not in every registry, so `npm ci` finds the lock file incomplete.
tests/peers/node/programs/node_modules/ready: tests/peers/node/programs/package.json
	cd tests/peers/node/programs && npm install --silent --no-audit --no-fund --no-package-lock
	touch $@

tests/peers/node/%/node_modules/ready: tests/peers/node/%/package-lock.json
	cd tests/peers/node/$* && npm ci --silent --no-audit --no-fund
	touch $@

# It builds the TypeScript client after its own packages.
examples/react-chat/node_modules/ready: clients/typescript/node_modules/ready

clients/typescript/node_modules/ready console/node_modules/ready tools/typescript/node_modules/ready $(addsuffix /node_modules/ready,$(PAGES)): %/node_modules/ready: %/package-lock.json
	cd $* && npm ci --silent --no-audit --no-fund
	touch $@

clean: ## remove everything that was built or installed
	cargo clean
	rm -rf clients/python/python/turnwire/*.so clients/python/python/turnwire/bin
	rm -rf fuzz/target fuzz/corpus fuzz/artifacts tests/peers/node/*/node_modules \
	clients/typescript/node_modules clients/typescript/dist console/node_modules tools/typescript/node_modules \
	examples/*/node_modules examples/*/dist
