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
        Command::Up(options) => block_on(up::run(*options)),
        Command::ControllerManager(options) => block_on(controller_manager::run(*options)),
        Command::New(options) => new::run(&options),
        Command::Node(command) => block_on(node::run(command)),
        Command::Completion { shell } => {
            clap_complete::generate(shell, &mut Arguments::command(), "setpoint", &mut std::io::stdout());
            Ok(())
        }
    }
}

fn block_on(future: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(future)
}
