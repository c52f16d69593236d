//! Development: applies changes in the directory.

use std::path::{Path, PathBuf};
use std::time::Duration;

use setpoint::{Client, Clock};
use setpoint_hooks::{Commands, Reload, Watches};

use super::directory::{Directory, stamps};
use super::manifests::{self, Namespace};

/// How often files are polled.
const LOOK_EVERY: Duration = Duration::from_millis(300);

/// The reloaded operator.
pub(crate) struct Reloading {
    pub(crate) client: Client,
    pub(crate) clock: Clock,
    /// The default namespace of manifests.
    pub(crate) namespace: String,
    /// Whether missing namespaces are created.
    pub(crate) creates_missing: bool,
    pub(crate) commands: Commands,
    pub(crate) watches: Watches,
    pub(crate) reload: Reload,
}

impl Reloading {
    /// Watches the files of a directory until the future is dropped.
    pub(crate) async fn follow(&self, path: &Path, mut known: Directory) {
        loop {
            self.clock.sleep(LOOK_EVERY).await;
            let Ok(now) = stamps(path) else { continue };
            if now == known.files {
                continue;
            }
            let mut changed: Vec<&PathBuf> = now
                .iter()
                .filter(|(file, stamp)| known.files.get(*file) != Some(*stamp))
                .map(|(file, _)| file)
                .collect();
            changed.extend(known.files.keys().filter(|file| !now.contains_key(*file)));
            let names: Vec<_> = changed.iter().map(|file| file.display().to_string()).collect();
            eprintln!("changed: {}", names.join(", "));
            // An unreadable file is retried when it changes.
            known.files = now.clone();
            match Directory::read(path) {
                Ok(next) => known = self.take_over(&known, next).await,
                Err(error) => eprintln!("error: {error:#}"),
            }
        }
    }

    async fn take_over(&self, known: &Directory, next: Directory) -> Directory {
        let namespace = Namespace { default: &self.namespace, creates_missing: self.creates_missing };
        if next.manifests != known.manifests {
            match manifests::apply(&self.client, &self.clock, &namespace, &next.manifests).await {
                Ok(count) => eprintln!("applied {count} manifests"),
                Err(error) => eprintln!("error: {error:#}"),
            }
        }
        self.commands.set(next.commands.clone());
        self.commands.restart();
        self.watches.set(next.watches.clone());
        self.reload.all();
        next
    }
}
