//! Cache size metrics, and warnings about caches that are larger than expected.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::BoxFuture;
use setpoint_clock::Clock;
use tokio_util::sync::CancellationToken;

use crate::informer::Informers;
use crate::metrics::Metrics;
#[cfg(feature = "serve")]
use crate::serve::Profile;
use crate::{Kind, Runnable};

/// How often cache sizes are checked.
const INTERVAL: Duration = Duration::from_secs(30);

/// A runnable that reports caches with more objects than expected (`informerConfig.cacheSize`).
pub(super) struct CacheSizes {
    pub(super) expected: usize,
    pub(super) informers: Informers,
    pub(super) metrics: Metrics,
    pub(super) clock: Clock,
}

impl CacheSizes {
    /// Updates the metrics and warns once about each cache that has become too large.
    fn look(&self, reported: &mut BTreeSet<Kind>) {
        for size in self.informers.sizes() {
            let labels = [("group", size.kind.group()), ("resource", size.kind.plural())];
            let help = "Objects that the caches of a kind hold.";
            self.metrics.set_gauge("setpoint_informer_objects", help, &labels, size.objects as f64);
            if size.objects <= self.expected {
                reported.remove(&size.kind);
            } else if reported.insert(size.kind.clone()) {
                let (kind, objects, expected) = (size.kind.plural(), size.objects, self.expected);
                tracing::warn!(kind, objects, expected, "a cache holds more than informerConfig.cacheSize");
            }
        }
    }
}

impl Runnable for CacheSizes {
    fn name(&self) -> &str {
        "cache-sizes"
    }

    fn run(self: Box<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut reported = BTreeSet::new();
            loop {
                self.look(&mut reported);
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = self.clock.sleep(INTERVAL) => {}
                }
            }
        })
    }

    fn needs_leader(&self) -> bool {
        false
    }
}

/// Returns the memory used by the caches, by kind. It counts the encoded objects, which are nearly all of it.
#[cfg(feature = "serve")]
pub(crate) fn heap(informers: &Informers) -> Profile {
    let mut profile = Profile::new("inuse_space", "bytes");
    for size in informers.sizes() {
        let kind = format!("cache of {}", size.kind.plural());
        profile.add([kind.as_str(), "informers"], i64::try_from(size.bytes).unwrap_or(i64::MAX));
    }
    profile
}
