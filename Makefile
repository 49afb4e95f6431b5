# The project's commands. Each installs what the machine lacks first (scripts/setup.sh), then does what it says.

.DEFAULT_GOAL := help
.PHONY: help demo install test hosts torture sim bench lint docs loom miri

# cargo is found even by a shell that has not read rustup's environment.
export PATH := $(PATH):$(if $(CARGO_HOME),$(CARGO_HOME),$(HOME)/.cargo)/bin

help: ## this list
	@echo 'usage: make TARGET [ARGS="..."]'
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' $(MAKEFILE_LIST)

demo: ## the live table of flight delays; ARGS go to `ardea demo`
	@scripts/setup.sh build
	cargo run --release --bin ardea -- demo $(ARGS)

install: ## the program `ardea` into ~/.cargo/bin, optimised as a whole; ARGS such as --features kafka
	@scripts/setup.sh build
	cargo install --profile dist --locked --path crates/cli $(ARGS)

test: ## all tests
	@scripts/setup.sh test
	@scripts/test.sh

hosts: ## clusters of four hosts on this machine, as root: whatever dies or is cut off, nothing is lost; ARGS choose scenarios
	@scripts/setup.sh test
	@scripts/hosts.sh $(ARGS)

torture: ## a job on a real cluster while all that can go wrong does: what comes out is right; ARGS such as --seed 7 --faults 200
	@scripts/setup.sh test
	@scripts/torture.sh $(ARGS)

sim: ## simulated clusters of a thousand containers through faults; ARGS go to `ardea-sim`
	@scripts/setup.sh build
	cargo run --release -p ardea-sim -- $(or $(ARGS),--large 3)

bench: ## `ardea bench nexmark --query q5 --max`, or `ardea bench` with ARGS; a table, in a pipe one line of JSON
	@scripts/setup.sh bench
	cargo run --profile dist --bin ardea -- bench $(or $(ARGS),nexmark --query q5 --max)

lint: ## format, clippy, docs, dependencies, house rules
	@scripts/setup.sh lint
	@scripts/lint.sh

docs: ## the API's documentation, in target/doc
	@scripts/setup.sh docs
	@bash -c '. scripts/workspace.sh && RUSTDOCFLAGS="-D warnings" cargo doc "$${workspace[@]}" --no-deps --lib'
	@echo "open target/doc/ardea/index.html"

loom: ## the ring and the engine's wake-ups in every interleaving of threads
	@scripts/setup.sh loom
	@scripts/loom.sh

miri: ## the ring under Miri, on the nightly toolchain
	@scripts/setup.sh miri
	@scripts/miri.sh
