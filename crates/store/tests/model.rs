//! Random operations on every engine, compared with a model too simple to be wrong: the list of all changes.
//!
//! What a watch returns is compared with the model's changes one by one. So all of etcd's watch guarantees that apply
//! here are checked: ordered, unique, reliable, resumable, bookmarkable, with previous values, distinguishing creates
//! from updates, filtered.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use proptest::prelude::*;
use setpoint_store::*;

use crate::engines::disk::SimDisk;
use crate::engines::{World, brief, clock, pods, text};

const PATHS: [&str; 6] = ["a/1", "a/2", "a/10", "b/1", "b/2", "c"];
const PREFIXES: [&str; 5] = ["", "a/", "b/", "a/1", "d/"];

#[derive(Clone, Debug)]
enum Op {
    /// Writes with the correct expectation, or with one that is off by this much.
    Put {
        path: usize,
        stale_by: u64,
        ttl: Option<u64>,
    },
    Delete {
        path: usize,
        stale_by: u64,
    },
    Get {
        path: usize,
        ago: u64,
    },
    List {
        prefix: usize,
        ago: u64,
        limit: usize,
        after: Option<usize>,
    },
    Watch {
        prefix: usize,
        ago: u64,
    },
    /// Reads from a watch.
    Read {
        watch: usize,
    },
    Compact {
        ago: u64,
    },
    Expire {
        seconds: u64,
    },
    Reopen,
}

fn op() -> impl Strategy<Value = Op> {
    let (path, prefix) = (0..PATHS.len(), 0..PREFIXES.len());
    let stale_by = prop_oneof![9 => Just(0), 1 => 1..3_u64];
    let ttl = prop_oneof![4 => Just(None), 1 => (1..20_u64).prop_map(Some)];
    prop_oneof![
        12 => (path.clone(), stale_by.clone(), ttl).prop_map(|(path, stale_by, ttl)| Op::Put { path, stale_by, ttl }),
        4 => (path.clone(), stale_by).prop_map(|(path, stale_by)| Op::Delete { path, stale_by }),
        3 => (path.clone(), 0..20_u64).prop_map(|(path, ago)| Op::Get { path, ago }),
        3 => (prefix.clone(), 0..20_u64, 0..4_usize, proptest::option::of(path))
            .prop_map(|(prefix, ago, limit, after)| Op::List { prefix, ago, limit, after }),
        3 => (prefix, 0..20_u64).prop_map(|(prefix, ago)| Op::Watch { prefix, ago }),
        6 => (0..8_usize).prop_map(|watch| Op::Read { watch }),
        1 => (0..20_u64).prop_map(|ago| Op::Compact { ago }),
        1 => (0..20_u64).prop_map(|seconds| Op::Expire { seconds }),
        1 => Just(Op::Reopen),
    ]
}

/// A change in the model.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    brief: String,
    path: String,
    revision: Revision,
    value: String,
    previous: Option<(Revision, String)>,
    is_removal: bool,
}

struct Model {
    changes: Vec<Entry>,
    compacted: Revision,
}

impl Model {
    fn revision(&self) -> Revision {
        self.changes.len() as Revision + 1
    }

    /// Returns the revision this many changes ago.
    fn ago(&self, ago: u64) -> Revision {
        self.revision().saturating_sub(ago)
    }

    fn at(&self, path: &str, revision: Revision) -> Option<(Revision, String)> {
        let past = self.changes.iter().rfind(|change| change.path == path && change.revision <= revision)?;
        (!past.is_removal).then(|| (past.revision, past.value.clone()))
    }

    fn list(&self, prefix: &str, revision: Revision) -> Vec<(String, String)> {
        let mut paths = PATHS.to_vec();
        paths.sort();
        let under = paths.into_iter().filter(|path| path.starts_with(prefix));
        under.filter_map(|path| Some((path.to_owned(), self.at(path, revision)?.1))).collect()
    }

    fn change(&mut self, path: &str, value: Option<&str>) {
        let previous = self.at(path, self.revision());
        let revision = self.revision() + 1;
        let sign = match (value, &previous) {
            (None, _) => '-',
            (Some(_), None) => '+',
            (Some(_), Some(_)) => '~',
        };
        self.changes.push(Entry {
            brief: format!("{sign}{path}@{revision}"),
            path: path.to_owned(),
            revision,
            value: value.map_or_else(|| previous.clone().unwrap().1, str::to_owned),
            previous,
            is_removal: value.is_none(),
        });
    }

    fn events(&self, prefix: &str, after: Revision) -> Vec<Entry> {
        let events =
            self.changes.iter().filter(|change| change.path.starts_with(prefix) && change.revision > after);
        events.cloned().collect()
    }

    fn readable<T>(&self, at: Revision, result: Result<T, Error>) -> Option<T> {
        match result {
            Err(Error::Compacted { requested, oldest }) => {
                assert!(at < self.compacted, "{at} is not compacted");
                assert_eq!((requested, oldest), (at, self.compacted));
                None
            }
            result => {
                assert!(at >= self.compacted, "{at} has been compacted");
                Some(result.unwrap())
            }
        }
    }
}

/// A watch and what it has returned so far.
struct Watcher {
    watch: Watch,
    prefix: &'static str,
    from: Revision,
    seen: Vec<Entry>,
}

struct Run {
    world: World,
    disk: Option<Arc<SimDisk>>,
    model: Model,
    watchers: Vec<Watcher>,
    values: u64,
}

impl Run {
    fn new(world: World, disk: Option<Arc<SimDisk>>) -> Self {
        Self {
            world,
            disk,
            model: Model { changes: Vec::new(), compacted: 0 },
            watchers: Vec::new(),
            values: 0,
        }
    }

    async fn run(mut self, ops: Vec<Op>) {
        for op in ops {
            self.step(op).await;
            assert_eq!(self.world.store.revision(), self.model.revision());
            self.check_progress();
        }
        for watch in 0..self.watchers.len() {
            self.read(watch);
        }
    }

    async fn step(&mut self, op: Op) {
        match op {
            Op::Put { path, stale_by, ttl } => self.put(PATHS[path], stale_by, ttl).await,
            Op::Delete { path, stale_by } => self.delete(PATHS[path], stale_by).await,
            Op::Get { path, ago } => self.get(PATHS[path], self.model.ago(ago)).await,
            Op::List { prefix, ago, limit, after } => {
                self.list(PREFIXES[prefix], self.model.ago(ago), limit, after.map(|path| PATHS[path])).await
            }
            Op::Watch { prefix, ago } => self.watch(PREFIXES[prefix], self.model.ago(ago)),
            Op::Read { watch } => self.read(watch),
            Op::Compact { ago } => {
                let revision = self.model.ago(ago);
                self.world.store.compact(revision).await.unwrap();
                self.model.compacted = self.model.compacted.max(revision);
            }
            Op::Expire { seconds } => self.expire(Duration::from_secs(seconds)).await,
            Op::Reopen => self.reopen().await,
        }
    }

    fn expectation(&self, path: &str, stale_by: u64) -> (Expect, bool) {
        match (self.model.at(path, self.model.revision()), stale_by) {
            (Some((revision, _)), 0) => (Expect::Revision(revision), true),
            (Some((revision, _)), by) => (Expect::Revision(revision - by.min(revision)), false),
            (None, 0) => (Expect::Absent, true),
            (None, by) => (Expect::Revision(self.model.ago(by)), false),
        }
    }

    async fn put(&mut self, path: &str, stale_by: u64, ttl: Option<u64>) {
        let (expect, is_right) = self.expectation(path, stale_by);
        self.values += 1;
        let value = format!("value {}", self.values);
        let result = self.world.put(pods().key(path), expect, &value, ttl.map(Duration::from_secs)).await;
        match is_right {
            true => {
                self.model.change(path, Some(&value));
                let record = result.unwrap();
                assert_eq!((record.modified, text(&record)), (self.model.revision(), &*value));
            }
            false => self.check_conflict(path, result),
        }
    }

    async fn delete(&mut self, path: &str, stale_by: u64) {
        let (expect, is_right) = self.expectation(path, stale_by);
        let result = self.world.commit(pods().key(path), expect, Change::Delete).await;
        match is_right && expect != Expect::Absent {
            true => {
                self.model.change(path, None);
                assert_eq!(result.unwrap().modified, self.model.revision());
            }
            false => self.check_conflict(path, result),
        }
    }

    fn check_conflict(&self, path: &str, result: Result<Arc<Record>, Error>) {
        let Err(Error::Conflict { current }) = result else { panic!("not a conflict: {result:?}") };
        let current = current.map(|record| (record.modified, text(&record).to_owned()));
        assert_eq!(current, self.model.at(path, self.model.revision()));
    }

    async fn get(&self, path: &str, at: Revision) {
        if let Some(found) = self.model.readable(at, self.world.get_at(path, at).await) {
            assert_eq!(found, self.model.at(path, at).map(|(_, value)| value));
        }
    }

    async fn list(&self, prefix: &str, at: Revision, limit: usize, after: Option<&str>) {
        let options = ListOptions { at: Some(at), limit, from: after.map(just_after), before: None };
        let Some(page) = self.model.readable(at, self.world.list(prefix, options).await) else { return };
        let mut expected = self.model.list(prefix, at);
        expected.retain(|(path, _)| after.is_none_or(|after| &**path > after));
        let remaining = if limit == 0 { 0 } else { expected.len().saturating_sub(limit) };
        expected.truncate(expected.len() - remaining);
        let found: Vec<_> = page
            .records
            .iter()
            .map(|record| (record.key.path.to_string(), text(record).to_owned()))
            .collect();
        assert_eq!((found, page.remaining, page.revision), (expected, remaining, at));
    }

    fn watch(&mut self, prefix: &'static str, from: Revision) {
        let watch = self.world.store.watch(pods().under(prefix), from);
        if let Some(watch) = self.model.readable(from, watch) {
            self.watchers.push(Watcher { watch, prefix, from, seen: Vec::new() });
        }
    }

    /// Checks that a watch either returns exactly what the model says, or correctly reports that it cannot.
    fn read(&mut self, watch: usize) {
        let Some(watcher) = self.watchers.get_mut(watch) else { return };
        let expected = self.model.events(watcher.prefix, watcher.from);
        let missed =
            expected.get(watcher.seen.len()).is_some_and(|next| next.revision <= self.model.compacted);
        loop {
            match watcher.watch.next().now_or_never() {
                Some(Ok(events)) => watcher.seen.extend(events.iter().map(|event| entry(event))),
                Some(Err(WatchError::FellBehind { .. })) if missed => {
                    self.watchers.remove(watch);
                    return;
                }
                Some(Err(error)) => panic!("{error}"),
                None => break,
            }
        }
        assert!(!missed, "the watch should have failed after missing events");
        assert_eq!(watcher.seen, expected);
        assert_eq!(watcher.watch.revision(), self.model.revision());
    }

    /// Checks that everything up to the revision that a watch reports has been returned.
    fn check_progress(&self) {
        for watcher in &self.watchers {
            let reported = watcher.watch.revision();
            let mut due = self.model.events(watcher.prefix, watcher.from);
            due.retain(|event| event.revision <= reported);
            assert!(due.len() <= watcher.seen.len(), "{reported} is reported, but {:?} is owed", due.last());
        }
    }

    async fn expire(&mut self, after: Duration) {
        self.world.advance(after).await;
        let live = self.world.list("", ListOptions::default()).await.unwrap().records;
        let now = self.world.clock.now();
        let mut due: Vec<_> =
            live.iter().filter(|record| record.expires.is_some_and(|at| at <= now)).collect();
        due.sort_by_key(|record| (record.expires, record.key.path.clone()));
        due.iter().for_each(|record| self.model.change(&record.key.path, None));
        assert_eq!(self.world.expire().await, due.len());
    }

    /// Closes and reopens a durable store. Everything is kept except history.
    async fn reopen(&mut self) {
        let Some(disk) = &self.disk else { return };
        self.watchers.clear();
        self.world.store.close().await;
        self.world.store = open(disk, &self.world.clock);
        self.model.compacted = if self.model.revision() == 1 { 0 } else { self.model.revision() };
    }
}

fn entry(event: &Event) -> Entry {
    let value = |record: &Record| (record.modified, text(record).to_owned());
    Entry {
        brief: brief(event),
        path: event.record.key.path.to_string(),
        revision: event.revision(),
        value: text(&event.record).to_owned(),
        previous: event.previous.as_deref().map(value),
        is_removal: event.kind == EventKind::Deleted,
    }
}

fn open(disk: &Arc<SimDisk>, clock: &setpoint_clock::Clock) -> Arc<dyn Store> {
    let options =
        DurableOptions { checkpoint_after: 1_000, checkpoint_slice: 100, ..DurableOptions::default() };
    Arc::new(DurableStore::open_on(disk.share(), clock.clone(), options).unwrap())
}

fn on_paused_runtime(run: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(run);
}

proptest! {
    // Failures print the operations they came from. A file of seeds would say less.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_memory_engine_matches_the_model(ops in proptest::collection::vec(op(), 1..120)) {
        on_paused_runtime(async { Run::new(World::memory().await, None).run(ops).await });
    }

    #[test]
    fn the_durable_engine_matches_the_model(ops in proptest::collection::vec(op(), 1..120)) {
        on_paused_runtime(async {
            let (disk, clock) = (Arc::default(), clock());
            let world = World::with_store(open(&disk, &clock), clock);
            Run::new(world, Some(disk)).run(ops).await;
        });
    }
}
