# Everything a developer types. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help run test lint bench fuzz loom sim-search historic

help: ## This list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a whole control plane on this machine (Ctrl-C stops it; the state stays in ./setpoint-data)
	cargo run --release --quiet --bin setpoint -- up --data-dir setpoint-data --kubeconfig setpoint.kubeconfig

test: lint ## Every test: units, simulation, store crashes, and a real kubectl against the real binary
	cargo test --workspace --quiet --doc
	KUBECTL="$$(scripts/kubectl)" cargo test --workspace --all-targets --quiet

lint: ## Formatting and clippy, without warnings
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

bench: ## Benchmarks, with peers side by side where they can run (BENCH=name runs one)
	cargo build --release --quiet --bin setpoint
	WRK="$$(scripts/wrk)" cargo run --release --quiet -p setpoint-bench -- $(BENCH)

fuzz: ## A long run of bent documents, patches, selectors, expressions, tokens and certificates (SEED=n, RUNS=n)
	SETPOINT_FUZZ_SEED=$(or $(SEED),1) SETPOINT_FUZZ_RUNS=$(or $(RUNS),200000) \
		cargo test --release --quiet -p setpoint-apiserver --test api fuzz

loom: ## The work queue's core in more orders of steps than `make test` tries (PREEMPTIONS=n)
	LOOM_MAX_PREEMPTIONS=$(or $(PREEMPTIONS),4) cargo test --release --quiet -p setpoint --test queue_loom

sim-search: ## A long search for a plan of faults that a controller does not survive (SEED=n, COMBINATIONS=n)
	SETPOINT_SIM_SEED=$(or $(SEED),1) SETPOINT_SIM_COMBINATIONS=$(or $(COMBINATIONS),2000) \
		cargo test --release --quiet -p setpoint-sim --test faults -- --nocapture

historic: ## Bugs that controllers of Kubernetes once had, put back one by one: every one is noticed
	cargo test --workspace --test sets historic

.PHONY: docs test-deploy dist image reproducible
docs: ## The documentation of all crates, without warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet

test-deploy: ## The chart and kustomizations, alerts and dashboard with a real Prometheus, and a release whose image runs
	cargo clippy --workspace --features setpoint-cli/prometheus-tests --test user --quiet -- -D warnings
	KUBECTL="$$(scripts/kubectl)" cargo test --workspace --features setpoint-cli/prometheus-tests --test user --quiet deploy
	cargo build --workspace --bin setpoint --quiet
	scripts/test-dist

dist: ## A release into dist/: static binaries, image, chart, SBOM, checksums (TARGETS=…, PROFILE=… narrow it)
	scripts/dist

image: ## The container image of this machine's architecture: dist/image.tar, an OCI layout
	mkdir -p dist
	scripts/image dist/image.tar "$$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/')=$$(scripts/build-static "$$(uname -m)-unknown-linux-musl")"

reproducible: ## Builds a release twice, in two directories, and compares every byte
	scripts/reproducible
