//! Flags of scheduled snapshots, and the task that takes them.
//!
//! A snapshot is taken from memory, on a thread of its own, so it delays neither requests nor writes. Old ones are removed
//! only once a new one is complete.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use jiff::Timestamp;
use setpoint::Clock;
use setpoint_controllers::flags::duration;
use setpoint_store::{DurableStore, SnapshotInfo, private};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

const PREFIX: &str = "snapshot-";
const TIME: &str = "%Y%m%dT%H%M%SZ";

#[derive(Debug, Args)]
#[command(next_help_heading = "Snapshots")]
pub(crate) struct SnapshotFlags {
    /// How often a snapshot of the store is taken; 0 takes none.
    #[arg(long, default_value = "0", value_name = "DURATION", value_parser = duration)]
    snapshot_interval: Duration,
    /// Directory for snapshots [default: snapshots, in the data directory].
    #[arg(long, value_name = "DIR")]
    snapshot_dir: Option<PathBuf>,
    /// How many snapshots to keep.
    #[arg(long, default_value = "7", value_name = "N")]
    snapshot_keep: std::num::NonZeroUsize,
}

/// Takes snapshots of a store.
pub(crate) struct ScheduledSnapshots {
    store: Arc<DurableStore>,
    directory: PathBuf,
    interval: Duration,
    keep: usize,
    clock: Clock,
}

impl SnapshotFlags {
    /// Whether snapshots are asked for.
    pub(crate) fn are_taken(&self) -> bool {
        !self.snapshot_interval.is_zero()
    }

    /// Prepares the snapshots of a store in this data directory. `None`: none are taken.
    pub(crate) fn prepare(
        &self,
        store: Option<&Arc<DurableStore>>,
        data_dir: Option<&Path>,
        clock: &Clock,
    ) -> anyhow::Result<Option<ScheduledSnapshots>> {
        if !self.are_taken() {
            return Ok(None);
        }
        let (store, data_dir) = store.zip(data_dir).context(
            "--snapshot-interval: only the store in a data directory has snapshots; back up etcd itself",
        )?;
        ensure!(
            self.snapshot_interval >= Duration::from_secs(1),
            "--snapshot-interval: expected at least a second"
        );
        let directory = self.snapshot_dir.clone().unwrap_or_else(|| data_dir.join("snapshots"));
        let made = private::create_directory(&directory);
        made.with_context(|| format!("--snapshot-dir: cannot make {}", directory.display()))?;
        Ok(Some(ScheduledSnapshots {
            store: store.clone(),
            directory,
            interval: self.snapshot_interval,
            keep: self.snapshot_keep.get(),
            clock: clock.clone(),
        }))
    }
}

impl ScheduledSnapshots {
    /// Takes snapshots until `stop`. The first one is due an interval after the newest that exists.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let newest = self.existing().ok().and_then(|names| taken_at(names.last()?));
        let since = newest.map(|newest| self.clock.now().duration_since(newest));
        let since = since.and_then(|since| Duration::try_from(since).ok());
        let mut wait = since.map_or(Duration::ZERO, |since| self.interval.saturating_sub(since));
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.clock.sleep(wait) => {}
            }
            wait = self.interval;
            match self.take().await {
                Ok((path, info)) => tracing::info!(path = %path.display(), %info, "saved a snapshot"),
                Err(error) => tracing::error!(error = format!("{error:#}"), "cannot save a snapshot"),
            }
        }
    }

    async fn take(&self) -> anyhow::Result<(PathBuf, SnapshotInfo)> {
        let name = format!("{PREFIX}{}", self.clock.now().strftime(TIME));
        let path = self.directory.join(name);
        let (store, to) = (self.store.clone(), path.clone());
        let (done, saved) = oneshot::channel();
        let save = move || _ = done.send(store.save_snapshot(&to));
        thread::Builder::new().name("snapshot".into()).spawn(save).context("cannot start a thread")?;
        let info = saved.await.context("the thread stopped")??;
        self.prune()?;
        Ok((path, info))
    }

    /// Removes all but the newest.
    fn prune(&self) -> anyhow::Result<()> {
        let existing = self.existing()?;
        let old = existing.len().saturating_sub(self.keep);
        for name in &existing[..old] {
            let path = self.directory.join(name);
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
        Ok(())
    }

    /// Returns the names of existing snapshots, oldest first.
    fn existing(&self) -> anyhow::Result<Vec<String>> {
        let failed = || format!("cannot list {}", self.directory.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name().to_string_lossy().into_owned();
            if taken_at(&name).is_some() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}

/// Returns when a snapshot was taken, if the name is one of ours.
fn taken_at(name: &str) -> Option<Timestamp> {
    let time = name.strip_prefix(PREFIX)?;
    let time = jiff::civil::DateTime::strptime(TIME, time).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn snapshots_are_taken_on_time_and_old_ones_removed() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let store = Arc::new(DurableStore::open(directory.path(), clock.clone()).unwrap());
        let flags = SnapshotFlags {
            snapshot_interval: Duration::from_secs(60),
            snapshot_dir: None,
            snapshot_keep: std::num::NonZeroUsize::new(2).unwrap(),
        };
        let snapshots = flags.prepare(Some(&store), Some(directory.path()), &clock).unwrap().unwrap();
        fs::write(snapshots.directory.join("mine"), "").unwrap();
        for (minute, expected) in [
            (0, vec!["snapshot-20250101T000000Z"]),
            (1, vec!["snapshot-20250101T000000Z", "snapshot-20250101T000100Z"]),
            (2, vec!["snapshot-20250101T000100Z", "snapshot-20250101T000200Z"]),
        ] {
            snapshots.take().await.unwrap();
            assert_eq!(snapshots.existing().unwrap(), expected, "{minute}");
            clock.sleep(Duration::from_secs(60)).await;
        }
        assert!(snapshots.directory.join("mine").exists(), "other files stay");
        assert!(flags.prepare(None, None, &clock).is_err());
    }
}
