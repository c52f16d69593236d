# The commands of this project. `make help` lists them.
.DEFAULT_GOAL := help
CHECKS ?= licenses bans sources
.PHONY: help run test test-quick lint shellcheck minimum-rust deny publish-check semver-check docs demo bench fuzz properties faults loom sim-search sim-exhaustive historic test-deploy test-ansible test-new dist image reproducible

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a control plane on this machine (Ctrl-C stops it; state is kept in ./setpoint-data)
	cargo run --profile local -p setpoint-cli -- up --data-dir setpoint-data --kubeconfig setpoint.kubeconfig

test: ## Run every lint and test: units, simulation, store crashes, and real clients against the real binary
	scripts/test

test-quick: ## Run the tests that need no cluster and no real time, for the inner loop
	cargo test --quiet --lib --bins --test tidy --test api

lint: ## Check formatting and run clippy, benchmarks included; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

shellcheck: ## Check the shell scripts
	shellcheck --severity=warning $$(grep --recursive --files-with-matches '^#!/usr/bin/env bash' scripts)

minimum-rust: ## Build with the oldest Rust that the manifest promises
	RUSTUP_TOOLCHAIN="$$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)" cargo check --locked

deny: ## Check dependencies: unused, duplicate, sources, licences (CHECKS= adds the advisory database)
	"$$(scripts/cargo-tool machete)"
	"$$(scripts/cargo-tool deny)" check $(CHECKS)

publish-check: ## Package every published crate and build it from its package, in dependency order
	cargo publish --workspace --dry-run --allow-dirty

semver-check: ## Check that the version fits the API changes since the last published one
	"$$(scripts/cargo-tool semver-checks)" semver-checks --workspace

docs: ## Build rustdoc and the documentation site, and check links; warnings are errors
	@# Module headers name private items; rustdoc shows those as plain text.
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --workspace --no-deps --quiet
	cargo test --quiet --test tidy
	scripts/docs

demo: ## Record docs/demo.svg from a real session
	cargo build --profile local -p setpoint-cli
	KUBECTL="$$(scripts/kubectl)" scripts/demo

bench: ## Run benchmarks, next to other implementations where possible (BENCH=name runs one)
	cargo build --profile dist --bin setpoint --features setpoint-cli/jemalloc
	WRK="$$(scripts/wrk)" cargo run --profile dist -p setpoint-bench -- $(BENCH)

fuzz: ## Fuzz documents, patches, selectors, expressions, tokens and certificates for longer (SEED=n, RUNS=n)
	SETPOINT_FUZZ_SEED=$(or $(SEED),1) SETPOINT_FUZZ_RUNS=$(or $(RUNS),200000) \
		cargo test --release --quiet -p setpoint-apiserver --test api fuzz

properties: ## Check the laws of CUE with more cases than `make test` (SEED=n, CASES=n)
	PROPTEST_RNG_SEED=$(or $(SEED),2) PROPTEST_CASES=$(or $(CASES),20000) \
		cargo test --release --quiet -p setpoint-cue --test language properties

faults: ## Make 10,000 failing calls to webhooks, extension servers and kubelets, and check what is left (CALLS=n)
	SETPOINT_FAULT_CALLS=$(or $(CALLS),10000) \
		cargo test --quiet -p setpoint-apiserver --test api endurance -- --nocapture --test-threads=1

loom: ## Model-check the work queue with more preemptions than `make test` (PREEMPTIONS=n)
	LOOM_MAX_PREEMPTIONS=$(or $(PREEMPTIONS),4) cargo test --release --quiet -p setpoint --test queue_loom

sim-search: ## Search longer for fault schedules that break a controller (SEED=n, COMBINATIONS=n)
	SETPOINT_SIM_EXHAUSTIVE=1 SETPOINT_SIM_SEED=$(or $(SEED),1) SETPOINT_SIM_COMBINATIONS=$(or $(COMBINATIONS),2000) \
		cargo test --release --quiet -p setpoint-sim --test sim faults:: -- --nocapture

sim-exhaustive: ## Try every single fault in every simulated scenario, where `make test` tries half
	SETPOINT_SIM_EXHAUSTIVE=1 cargo test --release --quiet --test sim --test oam --test hooks

historic: ## Reintroduce historical bugs of Kubernetes one by one, and check that tests notice (BUG=name tries one)
	scripts/historic $(BUG)

test-deploy: ## Test the chart, alerts and dashboard with a real Prometheus, and a release and its image
	cargo clippy --workspace --features setpoint-cli/prometheus-tests --test user --quiet -- -D warnings
	KUBECTL="$$(scripts/kubectl)" cargo test --workspace --features setpoint-cli/prometheus-tests --test user --quiet deploy
	cargo build --workspace --bin setpoint --quiet
	scripts/test-dist

test-ansible: ## Test Ansible operators with a real Ansible (a download of 60 MB)
	KUBECTL="$$(scripts/kubectl)" cargo test --workspace --features setpoint-cli/ansible-tests --test user --quiet playbooks

test-new: ## Generate a project in each language; build, test and run it; report the time to the first passing test (LANGS=…)
	scripts/test-new

dist: ## Build a release into dist/: static binaries, image, chart, SBOM, checksums (TARGETS=…, PROFILE=… narrow it)
	scripts/dist

image: ## Build the container image for this architecture: dist/image.tar, an OCI layout
	mkdir -p dist
	scripts/image dist/image.tar "$$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')=$$(scripts/build-static "$$(uname -m)-unknown-linux-musl")"

reproducible: ## Build a release twice, in two directories, and compare every byte
	scripts/reproducible
