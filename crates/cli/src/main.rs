//! The binary `setpoint`: arguments → configuration → run.

mod args;
mod controller_manager;
mod kubeconfig;
mod logging;
mod new;
mod node;
mod pki;
mod process;
mod up;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Arguments, Command};

// Long-lived caches of small buffers fragment the system allocator: jemalloc gives memory back.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    logging::start(&arguments.logging);
    match run(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Up(options) => block_on(cores(), up::run(*options)),
        Command::ControllerManager(options) => block_on(cores() / 2, controller_manager::run(*options)),
        Command::New(options) => new::run(&options),
        Command::Node(command) => block_on(1, node::run(command)),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "setpoint", &mut std::io::stdout());
            Ok(())
        }
    }
}

/// How many threads can run at once.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Runs a command on so many threads, one at least. Controllers mostly wait for an API server elsewhere: half of
/// the cores are plenty, and threads that wake each other to find nothing to do took a fifth of a controller
/// manager's time.
fn block_on(threads: usize, future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    let threads = threads.max(1);
    tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?.block_on(future)
}
