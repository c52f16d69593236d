//! A run of a container's program, simulated as time passes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;

use crate::log::{LogBuffer, LogStream};
use crate::process::{Done, Input, Invocation, Io, Output, Pace, Reckoning, Shell};
use crate::shell::List;

/// How many steps a run may take in all: some days of a loop with one round a second, and half a second to compute.
const STEPS: u64 = 2_000_000;

/// How many steps it takes before it yields.
const BURST: u64 = 20_000;

/// A run of a program. Its output goes to a log, its files to those of the container.
pub(crate) struct LiveRun {
    since: Timestamp,
    reckoning: Arc<Reckoning>,
    running: Option<BoxFuture<'static, Done>>,
    log: LogBuffer,
}

impl LiveRun {
    /// Returns the pace of a run that starts at `since`.
    pub(crate) fn pace(since: Timestamp) -> (Pace, Arc<Reckoning>) {
        let reckoning = Reckoning::new(since, Duration::ZERO, STEPS);
        (Pace::Reckoned(reckoning.clone()), reckoning)
    }

    /// Starts a run at the pace of `reckoning`.
    pub(crate) fn start(
        script: List,
        invocation: Invocation,
        since: Timestamp,
        reckoning: Arc<Reckoning>,
        log: &LogBuffer,
        reads_stdin: bool,
    ) -> Self {
        let stdout = Output::Log(log.writer(LogStream::Stdout));
        let stderr = Output::Log(log.writer(LogStream::Stderr));
        let stdin = if reads_stdin { Input::Silent } else { Input::Empty };
        let io = Io { stdin, stdout, stderr, terminal: None };
        let mut shell = Shell::new(invocation);
        let running = Box::pin(async move { shell.run(&script, &io).await });
        Self { since, reckoning, running: Some(running), log: log.clone() }
    }

    /// Simulates the run up to a time.
    pub(crate) async fn advance(&mut self, until: Timestamp) {
        let Ok(horizon) = Duration::try_from(until.duration_since(self.since)) else { return };
        while self.poll(horizon) {
            tokio::task::yield_now().await;
        }
    }

    /// Returns when the run continues, if it sleeps.
    pub(crate) fn wakes_at(&self) -> Option<Timestamp> {
        self.running.as_ref()?;
        self.reckoning.wakes_after().and_then(|after| self.since.checked_add(after).ok())
    }

    /// Returns true if the run has more to do at this time.
    fn poll(&mut self, horizon: Duration) -> bool {
        let Some(running) = &mut self.running else { return false };
        self.reckoning.extend(horizon, BURST);
        let mut context = Context::from_waker(futures::task::noop_waker_ref());
        match Pin::new(running).poll(&mut context) {
            // It has ended, or does something unknown.
            Poll::Ready(done) => {
                self.running = None;
                if done.is_ok() {
                    self.log.finish(self.reckoning.now());
                }
                false
            }
            Poll::Pending => self.reckoning.is_in_the_middle(),
        }
    }
}
