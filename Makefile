# The project's commands. Each first installs missing tools (scripts/setup.sh).

.DEFAULT_GOAL := help
.PHONY: help demo install test python check hosts torture sim bench lint docs loom miri ui ui-test ui-screenshots rest-properties

# Finds cargo even in a shell that has not loaded rustup's environment.
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin

help: ## this list
	@echo 'usage: make TARGET [ARGS="..."]'
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

demo: ## the live table of flight delays; ARGS such as --speed 3600, --help
	@scripts/setup.sh build
	cargo run --profile demo -p ardea-demo -- $(ARGS)

install: ## the program `ardea` into ~/.cargo/bin, optimised as a whole; ARGS such as --features kafka
	@scripts/setup.sh build
	cargo install --locked --path crates/cli $(ARGS)

test: ## all tests
	@scripts/setup.sh test
	@scripts/test.sh

python: ## the wheel of the Python SDK, its tests and type checks; ARGS go to pytest
	@scripts/setup.sh python
	@scripts/python.sh $(ARGS)

check: ## quick checks of the changes since BASE (main): format, rules, clippy, tests
	@scripts/setup.sh test
	@scripts/check.sh $(or $(BASE),main)

hosts: ## failure tests on clusters of four hosts on this machine, as root; ARGS choose scenarios
	@scripts/setup.sh test
	@scripts/hosts.sh $(ARGS)

torture: ## the output of a job on a real cluster under random faults; ARGS such as --seed 7 --faults 200
	@scripts/setup.sh test
	@scripts/torture.sh $(ARGS)

sim: ## simulated clusters of a thousand containers through faults; ARGS go to `ardea-sim`
	@scripts/setup.sh build
	cargo run --release -p ardea-sim -- $(or $(ARGS),--large 3)

bench: ## `ardea bench nexmark --query q5 --max`, or `ardea bench` with ARGS; a table, in a pipe one line of JSON
	@scripts/setup.sh bench
	cargo run --release --features ardea-cli/bench --bin ardea -- bench $(or $(ARGS),nexmark --query q5 --max)

lint: ## format, clippy, docs, dependencies, house rules
	@scripts/setup.sh lint
	@scripts/lint.sh

docs: ## the API's documentation, in target/doc
	@scripts/setup.sh docs
	@bash -c '. scripts/workspace.sh && RUSTDOCFLAGS="-D warnings" cargo doc "$${workspace[@]}" --no-deps --lib'
	@echo "open target/doc/ardea/index.html"

loom: ## model checks of the queue, the ring in shared memory and the engine's wake-ups
	@scripts/setup.sh loom
	@scripts/loom.sh

miri: ## the tests of the queue and the ring under Miri, on the nightly toolchain
	@scripts/setup.sh miri
	@scripts/miri.sh

ui: ## the web page, from ui/ into crates/rest/page
	@scripts/ui.sh build

ui-test: ## tests of the web page on real clusters, in headless Chromium; ARGS go to node's test runner
	@scripts/setup.sh ui
	@scripts/ui.sh test $(ARGS)

ui-screenshots: ## the pictures of the web page in docs/img
	@scripts/setup.sh ui
	@scripts/ui.sh screenshots

rest-properties: ## requests generated from the OpenAPI document, against a real cluster; ARGS go to `schemathesis run`
	@scripts/setup.sh build
	@scripts/rest-properties.sh $(ARGS)
