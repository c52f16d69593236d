//! Parents that never settle, for example because their hook returns the time or a counter in the status or in a child.
//!
//! Every write to a parent or a child causes another reconcile, so that hooks see the result. A hook with a different
//! response each time would be called in a hot loop. So if an object is written repeatedly and nothing changes except
//! through our own writes, the hook is called with backoff. Any other change to the parent, its children or its related
//! objects takes effect immediately. So does progress: writes to one object after another are not delayed.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use setpoint::{Instant, Key, Kind, Metadata};

use super::setup::ParentKey;
use crate::wire::Objects;

/// After this many consecutive writes to the same object, backoff starts.
const FREE: u32 = 3;
const LONGEST: Duration = Duration::from_secs(300);

type Name = (Kind, Key);

/// The versions of the children and related objects in a request to a hook: uids and resource versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Inputs(BTreeMap<Name, (String, String)>);

impl Inputs {
    pub(super) fn of(children: &Objects, related: &Objects) -> Self {
        let versions = children.iter().chain(related.iter()).map(|(kind, key, object)| {
            let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
            ((kind.clone(), key.clone()), (text("uid"), text("resourceVersion")))
        });
        Self(versions.collect())
    }

    /// Records an object that we have written.
    pub(super) fn write(&mut self, kind: &Kind, key: &Key, written: &Metadata) {
        let version = (written.uid.to_string(), written.resource_version.to_string());
        self.0.insert((kind.clone(), key.clone()), version);
    }

    /// Records that we have deleted an object.
    pub(super) fn delete(&mut self, kind: &Kind, key: &Key) {
        self.0.remove(&(kind.clone(), key.clone()));
    }

    /// Returns the objects that have changed.
    fn changed_since(&self, before: &Self) -> BTreeSet<Name> {
        let names = self.0.keys().chain(before.0.keys());
        names.filter(|name| self.0.get(name) != before.0.get(name)).cloned().collect()
    }

    fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.0.hash(&mut hasher);
        hasher.finish()
    }
}

/// The state before or after a reconcile.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<'a> {
    /// The resource version of the parent.
    pub(super) version: &'a str,
    pub(super) inputs: &'a Inputs,
}

/// The state of a parent whose last reconcile wrote something. Bounded by its children.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Damping {
    /// The version of the parent, and its inputs, after the last write.
    version: String,
    inputs: u64,
    /// The number of consecutive writes of each object, without another change.
    writes: BTreeMap<Name, u32>,
    not_before: Option<Instant>,
}

impl Damping {
    fn is_as_left(&self, state: State<'_>) -> bool {
        !self.writes.is_empty() && self.version == state.version && self.inputs == state.inputs.digest()
    }

    /// Returns how long to wait before the hook may be called.
    pub(super) fn pause(&self, state: State<'_>, now: Instant) -> Option<Duration> {
        let until = self.not_before.filter(|_| self.is_as_left(state))?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Records the end of a reconcile. Returns an object that has just been found not to settle.
    pub(super) fn note(
        &mut self,
        parent: &ParentKey,
        before: State<'_>,
        after: State<'_>,
        now: Instant,
    ) -> Option<Name> {
        let mut written = after.inputs.changed_since(before.inputs);
        if before.version != after.version {
            written.insert((parent.kind.clone(), parent.key.clone()));
        }
        if written.is_empty() {
            *self = Self::default();
            return None;
        }
        if !self.is_as_left(before) {
            self.writes.clear();
        }
        written.into_iter().for_each(|name| *self.writes.entry(name).or_default() += 1);
        let (name, writes) = self.writes.iter().max_by_key(|(_, writes)| **writes)?;
        let beyond = writes.saturating_sub(FREE);
        let news = (beyond == 1).then(|| name.clone());
        let pause = Duration::from_secs(1_u64.checked_shl(beyond.saturating_sub(1)).unwrap_or(u64::MAX));
        self.not_before = (beyond > 0).then(|| now + pause.min(LONGEST));
        (self.version, self.inputs) = (after.version.to_owned(), after.inputs.digest());
        news
    }
}

#[cfg(test)]
mod tests {
    use setpoint::Clock;

    use super::*;

    fn maps() -> Kind {
        Kind::new("", "v1", "ConfigMap", "configmaps", true)
    }

    fn parent() -> ParentKey {
        let kind = Kind::new("example.com", "v1", "Thing", "things", true);
        ParentKey { kind, key: Key::namespaced("n", "parent") }
    }

    /// Children with versions.
    fn children(versions: &[u32]) -> Inputs {
        let mut inputs = Inputs::default();
        for (nth, version) in versions.iter().enumerate() {
            let written = Metadata { resource_version: version.to_string().into(), ..Metadata::default() };
            inputs.write(&maps(), &Key::namespaced("n", format!("child-{nth}")), &written);
        }
        inputs
    }

    /// A parent whose reconciles each produce a new state.
    struct Run {
        damping: Damping,
        version: u32,
        inputs: Inputs,
        now: Instant,
    }

    impl Run {
        fn new() -> Self {
            let now = Clock::system().instant();
            Self { damping: Damping::default(), version: 1, inputs: children(&[1, 1]), now }
        }

        /// Records a reconcile that writes. Returns the delay in seconds, and whether an object was reported.
        fn write(&mut self, version: u32, inputs: Inputs) -> (u64, bool) {
            let (before, after) = (self.version.to_string(), version.to_string());
            let news = self.damping.note(
                &parent(),
                State { version: &before, inputs: &self.inputs },
                State { version: &after, inputs: &inputs },
                self.now,
            );
            (self.version, self.inputs) = (version, inputs);
            (self.pause().map_or(0, |pause| pause.as_secs()), news.is_some())
        }

        fn pause(&self) -> Option<Duration> {
            let version = self.version.to_string();
            self.damping.pause(State { version: &version, inputs: &self.inputs }, self.now)
        }
    }

    const PAUSES: [(u64, bool); 8] =
        [(0, false), (0, false), (0, false), (1, true), (2, false), (4, false), (8, false), (16, false)];

    #[tokio::test(start_paused = true)]
    async fn a_status_that_nothing_else_caused_is_followed_less_and_less_often() {
        let mut run = Run::new();
        let pauses: Vec<_> = (2..10).map(|version| run.write(version, children(&[1, 1]))).collect();
        assert_eq!(pauses, PAUSES);
        run.inputs = children(&[1, 2]);
        assert_eq!(run.pause(), None, "a child has changed");
        run.inputs = children(&[1, 1]);
        run.version = 10;
        assert_eq!(run.pause(), None, "someone else has changed the parent");
        run.version = 9;
        run.now += LONGEST;
        assert_eq!(run.pause(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_child_that_is_another_each_time_is_followed_less_and_less_often() {
        let mut run = Run::new();
        let pauses: Vec<_> = (2..10).map(|version| run.write(1, children(&[1, version]))).collect();
        assert_eq!(pauses, PAUSES);
    }

    #[tokio::test(start_paused = true)]
    async fn one_child_after_the_other_is_progress() {
        let mut run = Run::new();
        for count in 3..50 {
            assert_eq!(run.write(1, children(&vec![1; count])), (0, false), "{count} children");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_settles_is_never_held_up() {
        let mut run = Run::new();
        for version in 2..10 {
            assert_eq!(run.write(version, children(&[1, 1])), (0, false));
            assert_eq!(run.write(version, children(&[1, 1])), (0, false), "nothing was written");
            assert_eq!(run.damping, Damping::default());
        }
    }
}
