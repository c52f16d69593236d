# The commands of this project. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help run test lint docs demo bench fuzz loom sim-search historic

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: ## Start a control plane on this machine (Ctrl-C stops it; state is kept in ./setpoint-data)
	cargo run --release --quiet --bin setpoint -- up --data-dir setpoint-data --kubeconfig setpoint.kubeconfig

test: lint ## Run every test: units, simulation, store crashes, and a real kubectl against the real binary
	cargo test --workspace --quiet --doc
	KUBECTL="$$(scripts/kubectl)" cargo test --workspace --all-targets --quiet

lint: ## Check formatting and run clippy; warnings are errors
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --quiet -- -D warnings

docs: ## Build the documentation site and check its links; warnings are errors
	cargo test --workspace --quiet --test tidy page
	scripts/docs

demo: ## Record docs/demo.svg from a real session
	cargo build --release --quiet --bin setpoint
	KUBECTL="$$(scripts/kubectl)" scripts/demo

bench: ## Run benchmarks, next to other implementations where possible (BENCH=name runs one)
	cargo build --release --quiet --bin setpoint
	WRK="$$(scripts/wrk)" cargo run --release --quiet -p setpoint-bench -- $(BENCH)

fuzz: ## Fuzz documents, patches, selectors, expressions, tokens and certificates for longer (SEED=n, RUNS=n)
	SETPOINT_FUZZ_SEED=$(or $(SEED),1) SETPOINT_FUZZ_RUNS=$(or $(RUNS),200000) \
		cargo test --release --quiet -p setpoint-apiserver --test api fuzz

loom: ## Model-check the work queue with more preemptions than `make test` (PREEMPTIONS=n)
	LOOM_MAX_PREEMPTIONS=$(or $(PREEMPTIONS),4) cargo test --release --quiet -p setpoint --test queue_loom

sim-search: ## Search longer for fault schedules that break a controller (SEED=n, COMBINATIONS=n)
	SETPOINT_SIM_SEED=$(or $(SEED),1) SETPOINT_SIM_COMBINATIONS=$(or $(COMBINATIONS),2000) \
		cargo test --release --quiet -p setpoint-sim --test faults -- --nocapture

historic: ## Reintroduce historical bugs of Kubernetes controllers one by one, and check that tests notice
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
