# Everything a developer types. `make help` lists it.
.DEFAULT_GOAL := help
.PHONY: help run test lint bench sim-search

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

bench: ## Benchmarks, with peers side by side where they can run
	cargo run --release --quiet -p setpoint-bench
