# Everything a developer types. `make help` lists it.
.DEFAULT_GOAL := help
CHECKS ?= licenses bans sources
.PHONY: help run test test-quick lint deny publish-check bench fuzz loom sim-search historic

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a whole control plane on this machine (Ctrl-C stops it; the state stays in ./setpoint-data)
	cargo run --profile local --bin setpoint -- up --data-dir setpoint-data --kubeconfig setpoint.kubeconfig

test: ## Every lint and every test: units, simulation, store crashes, and a real kubectl against the real binary
	scripts/test

test-quick: ## The tests that need no cluster and no real time, for the inner loop
	cargo test --quiet --lib --bins --test tidy --test api

lint: ## Formatting and clippy, without warnings, of benchmarks too
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

deny: ## Dependencies: unused, duplicate, from where, under which licence (CHECKS= asks the advisory database too)
	"$$(scripts/cargo-tool machete)"
	"$$(scripts/cargo-tool deny)" check $(CHECKS)

publish-check: ## Package every crate that is published and build it from its package, in the order of dependencies
	cargo publish --workspace --dry-run --allow-dirty

bench: ## Benchmarks, with peers side by side where they can run (BENCH=name runs one)
	cargo build --profile dist --bin setpoint
	WRK="$$(scripts/wrk)" cargo run --profile dist -p setpoint-bench -- $(BENCH)

fuzz: ## A long run of bent documents, patches, selectors, expressions, tokens and certificates (SEED=n, RUNS=n)
	SETPOINT_FUZZ_SEED=$(or $(SEED),1) SETPOINT_FUZZ_RUNS=$(or $(RUNS),200000) \
		cargo test --release --quiet -p setpoint-apiserver --test api fuzz

loom: ## The work queue's core in more orders of steps than `make test` tries (PREEMPTIONS=n)
	LOOM_MAX_PREEMPTIONS=$(or $(PREEMPTIONS),4) cargo test --release --quiet -p setpoint --test queue_loom

sim-search: ## A long search for a plan of faults that a controller does not survive (SEED=n, COMBINATIONS=n)
	SETPOINT_SIM_SEED=$(or $(SEED),1) SETPOINT_SIM_COMBINATIONS=$(or $(COMBINATIONS),2000) \
		cargo test --release --quiet -p setpoint-sim --test sim faults:: -- --nocapture

historic: ## Bugs that controllers of Kubernetes once had, put back one by one: every one is noticed
	cargo test --workspace --test sim historic
