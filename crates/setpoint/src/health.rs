//! Liveness and readiness, as named checks.
//!
//! This module only computes the answers, in the format of Kubernetes' own health endpoints. The HTTP server is
//! elsewhere.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The check that fails while the process is shutting down.
const SHUTDOWN: &str = "shutdown";

/// A health check: returns the reason if it fails.
///
/// ```
/// let check: setpoint::health::Check = std::sync::Arc::new(|| Err("pods have not synced".to_owned()));
/// assert!(check().is_err());
/// ```
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The health checks of a process. Cheap to clone; clones share their checks.
///
/// ```
/// use setpoint::health::Health;
/// let health = Health::new();
/// health.add_livez("ping", || Ok(()));
/// health.add_readyz("informer-sync", || Err("pods have not synced".into()));
/// assert_eq!((health.livez().ok, health.livez().brief()), (true, "ok".to_owned()));
/// assert_eq!(health.readyz().verbose(),
///     "[+]ping ok\n[-]informer-sync failed: pods have not synced\nreadyz check failed\n");
/// ```
#[derive(Clone, Default)]
pub struct Health {
    checks: Arc<Mutex<Checks>>,
}

#[derive(Default)]
struct Checks {
    livez: BTreeMap<String, Check>,
    readyz: BTreeMap<String, Check>,
}

/// The result of a health endpoint.
///
/// ```
/// let report = setpoint::health::Health::new().livez();
/// assert!(report.ok && report.checks.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `healthz`, `livez` or `readyz`.
    pub endpoint: &'static str,
    /// Whether every check passed. Determines the status code: 200 or 500.
    pub ok: bool,
    /// Each check by name, with the reason if it failed.
    pub checks: Vec<(String, Result<(), String>)>,
}

impl Health {
    /// Creates an empty set of checks: live and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a liveness check: the process should be restarted if it fails. Replaces a check with the same name.
    pub fn add_livez(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().livez.insert(name.into(), Arc::new(check));
    }

    /// Adds a readiness check: the process should not be used while it fails. Replaces a check with the same name.
    pub fn add_readyz(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().readyz.insert(name.into(), Arc::new(check));
    }

    /// Makes `healthz` and `readyz` fail once `stop` is cancelled, but not `livez`: a process that is shutting down
    /// should get no new work, but should not be killed either.
    pub fn add_shutdown(&self, stop: &CancellationToken) {
        let stop = stop.clone();
        self.add_readyz(SHUTDOWN, move || match stop.is_cancelled() {
            true => Err("stopping".into()),
            false => Ok(()),
        });
    }

    /// Runs the checks of `healthz`: live, and not shutting down.
    pub fn healthz(&self) -> Report {
        let checks = self.checks.lock();
        let stopping = checks.readyz.get(SHUTDOWN).map(|check| (SHUTDOWN.to_owned(), check.clone()));
        let all = checks.livez.clone().into_iter().chain(stopping).collect::<Vec<_>>();
        drop(checks);
        Report::of("healthz", all)
    }

    /// Runs the liveness checks.
    pub fn livez(&self) -> Report {
        let checks = self.checks.lock().livez.clone();
        Report::of("livez", checks)
    }

    /// Runs the liveness and readiness checks.
    pub fn readyz(&self) -> Report {
        let checks = self.checks.lock();
        let all = checks.livez.clone().into_iter().chain(checks.readyz.clone()).collect::<Vec<_>>();
        drop(checks);
        Report::of("readyz", all)
    }
}

impl Report {
    fn of(endpoint: &'static str, checks: impl IntoIterator<Item = (String, Check)>) -> Self {
        let checks: Vec<_> = checks.into_iter().map(|(name, check)| (name, check())).collect();
        Self { endpoint, ok: checks.iter().all(|(_, result)| result.is_ok()), checks }
    }

    /// Removes some checks from the report.
    pub fn without<'a>(mut self, excluded: impl IntoIterator<Item = &'a str>) -> Self {
        let excluded: Vec<&str> = excluded.into_iter().collect();
        self.checks.retain(|(name, _)| !excluded.contains(&name.as_str()));
        self.ok = self.checks.iter().all(|(_, result)| result.is_ok());
        self
    }

    /// Reduces the report to one check. Returns `None` if there is no check with this name.
    pub fn only(mut self, name: &str) -> Option<Self> {
        self.checks.retain(|(known, _)| known == name);
        self.ok = self.checks.iter().all(|(_, result)| result.is_ok());
        Some(self).filter(|report| !report.checks.is_empty())
    }

    /// Formats the report as `ok`, or as the list of checks if one failed.
    pub fn brief(&self) -> String {
        if self.ok { "ok".into() } else { self.verbose() }
    }

    /// Formats the report with one line per check and a summary.
    pub fn verbose(&self) -> String {
        let mut text = String::new();
        for (name, result) in &self.checks {
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => writeln!(text, "[-]{name} failed: {why}"),
            };
        }
        let _ = writeln!(text, "{} check {}", self.endpoint, if self.ok { "passed" } else { "failed" });
        text
    }
}
