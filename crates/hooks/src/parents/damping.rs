//! Parents that never settle: their hook returns the time, say, or a counter, in the status or in a child.
//!
//! Every write to a parent or a child causes another reconcile, so that hooks see what became of it. A hook that answers
//! something else each time would be called for ever, as fast as possible. So, if an object is written again and again and
//! nothing but our own writes has changed, the hook is called less and less often. Any other change to the parent, its
//! children or its related objects counts at once. So does progress: writes to one object after the other are not held up.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use setpoint::{Instant, Key, Kind, Metadata};

use super::setup::ParentKey;
use crate::wire::Objects;

/// So many writes in a row to the same object are followed at once.
const FREE: u32 = 3;
const LONGEST: Duration = Duration::from_secs(300);

type Name = (Kind, Key);

/// The versions of the children and related objects that a hook is asked with: uids and resource versions.
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

    /// Notes an object as we have written it.
    pub(super) fn write(&mut self, kind: &Kind, key: &Key, written: &Metadata) {
        let version = (written.uid.to_string(), written.resource_version.to_string());
        self.0.insert((kind.clone(), key.clone()), version);
    }

    /// Notes that we have deleted an object.
    pub(super) fn delete(&mut self, kind: &Kind, key: &Key) {
        self.0.remove(&(kind.clone(), key.clone()));
    }

    /// Returns the objects that are not as they were.
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

/// What a reconcile began with, or left behind.
#[derive(Clone, Copy, Debug)]
pub(super) struct State<'a> {
    /// The resource version of the parent.
    pub(super) version: &'a str,
    pub(super) inputs: &'a Inputs,
}

/// What is known of a parent whose last reconcile wrote something. Bounded by its children.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Damping {
    /// The version of the parent, and its inputs, after the last write.
    version: String,
    inputs: u64,
    /// How often each object was written in a row, without another change.
    writes: BTreeMap<Name, u32>,
    not_before: Option<Instant>,
}

impl Damping {
    fn is_as_left(&self, state: State<'_>) -> bool {
        !self.writes.is_empty() && self.version == state.version && self.inputs == state.inputs.digest()
    }

    /// Returns how long the hook is not to be called.
    pub(super) fn pause(&self, state: State<'_>, now: Instant) -> Option<Duration> {
        let until = self.not_before.filter(|_| self.is_as_left(state))?;
        Some(until.saturating_duration_since(now)).filter(|left| !left.is_zero())
    }

    /// Notes the end of a reconcile. Returns an object for which it has just become clear that it does not settle.
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

    /// A parent whose reconciles each leave the next state.
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

        /// Notes a reconcile that writes. Returns the pause in seconds, and whether there is news.
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
