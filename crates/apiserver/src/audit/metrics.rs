//! Audit metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use super::backend::SendError;
use super::policy::Level;

/// The plugins that can fail, under v1.34's names.
pub(crate) const PLUGINS: [&str; 4] = ["buffered", "log", "truncate", "webhook"];

/// Counters of events and their outcomes.
#[derive(Default)]
pub(crate) struct Metrics {
    events: AtomicU64,
    rejected: AtomicU64,
    levels: [AtomicU64; 4],
    errors: [AtomicU64; 4],
}

impl Metrics {
    pub(super) fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn level(&self, level: Level) {
        self.levels[level as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn rejected_request(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts and logs lost audit events.
    pub(super) fn failed(&self, plugin: &'static str, events: u64, why: &SendError) {
        if let Some(at) = PLUGINS.iter().position(|known| *known == plugin) {
            self.errors[at].fetch_add(events, Ordering::Relaxed);
        }
        tracing::error!(plugin, events, error = %why, "audit events were not recorded");
    }

    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn levels(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let count = |level: Level| self.levels[level as usize].load(Ordering::Relaxed);
        Level::ALL.into_iter().map(move |level| (level.name(), count(level))).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn errors(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        PLUGINS.into_iter().map(|plugin| (plugin, self.errors_of(plugin))).filter(|(_, count)| *count > 0)
    }

    pub(super) fn errors_of(&self, plugin: &str) -> u64 {
        let at = PLUGINS.iter().position(|known| *known == plugin);
        at.map_or(0, |at| self.errors[at].load(Ordering::Relaxed))
    }
}
