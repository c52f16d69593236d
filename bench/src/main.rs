//! Benchmarks: `setpoint-bench NAME` runs one of them, `setpoint-bench` runs all.
//!
//! Each one runs in its own process, so that none inherits the memory of another.

mod applications;
mod control_plane;
mod convergence;
mod fan_out;
mod hooks;
mod indexer;
mod informer;
mod objects;
mod pods;
mod process;
mod queue;
mod reconcile;
mod report;
mod requests;
mod start;
mod store_engines;
mod store_memory;
mod webhooks;

use std::process::{Command, ExitCode};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A benchmark: its name, its description, and its function.
struct Bench {
    name: &'static str,
    description: &'static str,
    run: fn(),
}

const BENCHES: &[Bench] = &[
    Bench { name: "start", description: "start-up time, and memory and CPU when idle", run: start::run },
    Bench {
        name: "convergence",
        description: "time, CPU and memory to create and delete 10,000 pods of Deployments",
        run: convergence::run,
    },
    Bench {
        name: "applications",
        description: "time, CPU and memory to run many Applications",
        run: applications::run,
    },
    Bench {
        name: "hooks",
        description: "an operator whose hook is a Python process, with many parents",
        run: hooks::run,
    },
    Bench { name: "requests", description: "creates, gets and lists over TLS", run: requests::run },
    Bench { name: "webhooks", description: "creates through a validating webhook", run: webhooks::run },
    Bench { name: "fan-out", description: "one change to many watchers over TLS", run: fan_out::run },
    Bench {
        name: "queue",
        description: "the work queue, compared with client-go's published numbers",
        run: queue::run,
    },
    Bench { name: "objects", description: "decoding and reading one object", run: objects::run },
    Bench {
        name: "indexer",
        description: "the data structure of the cache, compared with the alternative",
        run: indexer::run,
    },
    Bench { name: "informer", description: "an informer, compared with kube-runtime's", run: informer::run },
    Bench {
        name: "reconcile",
        description: "latency from a change to its reconcile, compared with kube-runtime",
        run: reconcile::run,
    },
    Bench { name: "store-memory", description: "the in-memory store", run: store_memory::run },
    Bench {
        name: "store-engines",
        description: "the durable store, compared with redb and fjall",
        run: store_engines::run,
    },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.first().map(String::as_str) {
        None => run_all(),
        // A child process of `store-engines`.
        Some("store-engine") => {
            store_engines::run_one(&arguments[1..]);
            ExitCode::SUCCESS
        }
        // A child process of `webhooks`.
        Some(webhooks::SERVER) => {
            webhooks::serve();
            ExitCode::SUCCESS
        }
        Some(name) => match BENCHES.iter().find(|bench| bench.name == name) {
            Some(bench) => {
                (bench.run)();
                ExitCode::SUCCESS
            }
            None => usage(name),
        },
    }
}

fn run_all() -> ExitCode {
    let Ok(program) = std::env::current_exe() else { return ExitCode::FAILURE };
    let succeeded =
        |bench: &Bench| Command::new(&program).arg(bench.name).status().is_ok_and(|status| status.success());
    let failed: Vec<&str> =
        BENCHES.iter().filter(|bench| !succeeded(bench)).map(|bench| bench.name).collect();
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn usage(unknown: &str) -> ExitCode {
    eprintln!("unknown benchmark {unknown:?}; expected one of:");
    for Bench { name, description, .. } in BENCHES {
        eprintln!("  {name:<14} {description}");
    }
    ExitCode::FAILURE
}
