//! Runs scripts and commands in a simulated container.
//!
//! ```text
//!  pace.rs       in which time: real for `exec`, reckoned for the programs of containers
//!  io.rs         standard streams
//!  session.rs    a command of a client, and its terminal
//!  machine.rs    what a process sees of its container
//!  shell.rs      runs lists, pipelines and compound commands
//!  variables.rs  variables, shared by subshells
//!  redirect.rs   redirections
//!  expand.rs     words → fields
//!  arithmetic.rs pure: arithmetic expressions
//!  endless.rs    pure: loops that never end
//!  builtins.rs   commands that change the shell
//!  commands/     all others
//! ```
//!
//! The program of a container runs in computed time: `sleep` advances a counter, so an hour takes microseconds, and a
//! run is a function of its inputs. The contents of images are unknown, so such a run stops at the first unknown
//! command or file ([`Stop::Unknown`]). A user's command reports it instead ([`UnknownCommands::Interactive`]).
//!
//! Invariant: a run is bounded in steps, expanded text and memory of its files; in real time, it is throttled instead.

mod arithmetic;
mod builtins;
mod commands;
mod endless;
mod expand;
#[cfg(test)]
mod hostile_tests;
mod io;
mod machine;
mod pace;
mod redirect;
mod session;
mod shell;
#[cfg(test)]
mod tests;
mod variables;

use crate::files::FileError;

pub(crate) use commands::{NOT_FOUND, is_known, not_found};
pub(crate) use io::{Input, Io, Output};
pub(crate) use machine::{Identity, Machine, UnknownCommands};
pub(crate) use pace::{Pace, Reckoning};
pub(crate) use session::{ClientStreams, Terminal, run_session};
pub(crate) use shell::{Invocation, Shell};

/// Why a script stops before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Exit(i32),
    Return(i32),
    /// Out of this many loops.
    Break(usize),
    Continue(usize),
    /// A command cannot write its output to a file. Only this command stops.
    WriteFailed(FileError),
    /// It does something unknown to the simulation.
    Unknown,
    /// It waits forever.
    Forever,
}

/// The exit code of a command.
pub(crate) type Done = Result<i32, Stop>;

/// Returns the last part of a path.
pub(crate) fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}
