//! Whether this process is alive and ready, as named checks.
//!
//! Serving them is the business of whoever has a listener; this module only knows the answers, in the
//! form that Kubernetes' own health endpoints have.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// The check that fails once the process is stopping.
const SHUTDOWN: &str = "shutdown";

/// One check: fine, or why not.
///
/// ```
/// let check: setpoint::health::Check = std::sync::Arc::new(|| Err("pods have not synced".to_owned()));
/// assert!(check().is_err());
/// ```
pub type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// The checks of a process. Cheap to clone; clones share their checks.
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

/// The answer of an endpoint.
///
/// ```
/// let report = setpoint::health::Health::new().livez();
/// assert!(report.ok && report.checks.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// `healthz`, `livez` or `readyz`.
    pub endpoint: &'static str,
    /// Whether every check passed: 200 or 500.
    pub ok: bool,
    /// Each check by name, and why it failed if it did.
    pub checks: Vec<(String, Result<(), String>)>,
}

impl Health {
    /// No checks: alive and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a check without which the process should be restarted, under a name that it replaces.
    pub fn add_livez(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().livez.insert(name.into(), Arc::new(check));
    }

    /// Adds a check without which the process should not be relied on.
    pub fn add_readyz(
        &self,
        name: impl Into<String>,
        check: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        self.checks.lock().readyz.insert(name.into(), Arc::new(check));
    }

    /// Fails `healthz` and `readyz`, but not `livez`, once `stop` is cancelled: a process that finishes its
    /// work is not to be relied on, and not to be killed either.
    pub fn add_shutdown(&self, stop: &CancellationToken) {
        let stop = stop.clone();
        self.add_readyz(SHUTDOWN, move || match stop.is_cancelled() {
            true => Err("stopping".into()),
            false => Ok(()),
        });
    }

    /// Whether the process is well: alive, and not stopping.
    pub fn healthz(&self) -> Report {
        let checks = self.checks.lock();
        let stopping = checks.readyz.get(SHUTDOWN).map(|check| (SHUTDOWN.to_owned(), check.clone()));
        let all = checks.livez.clone().into_iter().chain(stopping).collect::<Vec<_>>();
        drop(checks);
        Report::of("healthz", all)
    }

    /// Whether the process should go on.
    pub fn livez(&self) -> Report {
        let checks = self.checks.lock().livez.clone();
        Report::of("livez", checks)
    }

    /// Whether the process can be relied on; it has to be alive for that.
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

    /// The same without some of its checks.
    pub fn without<'a>(mut self, excluded: impl IntoIterator<Item = &'a str>) -> Self {
        let excluded: Vec<&str> = excluded.into_iter().collect();
        self.checks.retain(|(name, _)| !excluded.contains(&name.as_str()));
        self.ok = self.checks.iter().all(|(_, result)| result.is_ok());
        self
    }

    /// One of its checks alone, if there is one of that name.
    pub fn only(mut self, name: &str) -> Option<Self> {
        self.checks.retain(|(known, _)| known == name);
        self.ok = self.checks.iter().all(|(_, result)| result.is_ok());
        Some(self).filter(|report| !report.checks.is_empty())
    }

    /// `ok`, or the checks if one of them failed.
    pub fn brief(&self) -> String {
        if self.ok { "ok".into() } else { self.verbose() }
    }

    /// Every check in a line, then the sum of them.
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
