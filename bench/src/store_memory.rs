//! The cost of the store's core without a disk: commits, reads, and fan-out to many watchers.

use std::sync::Arc;
use std::time::Duration;

use setpoint_clock::{Clock, Instant};
use setpoint_store::{
    Change, Expect, ListOptions, MemoryStore, Payload, Resource, Revision, Store, Watch, Write,
};

use crate::process;

const RECORDS: usize = 10_000;
const ROUNDS: usize = 10;
const WATCHERS: usize = 5_000;
const CHANGES_PER_SECOND: u32 = 200;

pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let clock = Clock::system();
    runtime.block_on(async {
        measure_commits(&clock).await;
        measure_reads(&clock).await;
    });
    for (label, prefixes) in [("all of one resource", false), ("5,000 namespaces", true)] {
        runtime.block_on(async {
            tokio::spawn(measure_fan_out(clock.clone(), label, prefixes)).await.expect("a run")
        });
    }
}

fn pods() -> Resource {
    Resource::new("pods")
}

fn path(number: usize) -> String {
    format!("namespace-{:04}/some-deployment-7c5ddbdf54-{number:06}", number % WATCHERS)
}

fn write(number: usize, expect: Expect) -> Write {
    let payload = Payload {
        bytes: format!("{{{}", "x".repeat(2047)).into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: setpoint_store::Inset::default(),
        facts: None,
    };
    Write { key: pods().key(path(number)), expect, change: Change::Put { payload, ttl: None } }
}

async fn put(store: &MemoryStore, number: usize, expect: Expect) -> Revision {
    store.commit(write(number, expect)).await.expect("a commit").modified
}

async fn filled(clock: &Clock) -> (MemoryStore, Vec<Revision>) {
    let store = MemoryStore::new(clock.clone());
    let mut revisions = Vec::new();
    for number in 0..RECORDS {
        revisions.push(put(&store, number, Expect::Absent).await);
    }
    (store, revisions)
}

async fn measure_commits(clock: &Clock) {
    let (store, mut revisions) = filled(clock).await;
    let mut committing = Duration::ZERO;
    for _ in 0..ROUNDS {
        for (number, revision) in revisions.iter_mut().enumerate() {
            let write = write(number, Expect::Revision(*revision));
            let start = clock.instant();
            *revision = store.commit(write).await.expect("a commit").modified;
            committing += clock.instant() - start;
        }
    }
    report("commit of 2 KB in memory", committing, ROUNDS * RECORDS);
}

async fn measure_reads(clock: &Clock) {
    let (store, _) = filled(clock).await;
    let keys: Vec<_> = (0..RECORDS).map(|number| pods().key(path(number))).collect();
    let start = clock.instant();
    for key in &keys {
        assert!(store.get(key, None).await.expect("a get").is_some());
    }
    report("get", clock.instant() - start, RECORDS);
    let all = pods().all();
    let start = clock.instant();
    for _ in 0..ROUNDS {
        assert_eq!(store.list(&all, ListOptions::default()).await.expect("a list").records.len(), RECORDS);
    }
    report("list of 10,000", clock.instant() - start, ROUNDS);
    let page =
        ListOptions { limit: 500, at: Some(store.revision() - 5_000), from: Some(path(2_000)), before: None };
    let start = clock.instant();
    for _ in 0..ROUNDS {
        store.list(&all, page.clone()).await.expect("a list");
    }
    report("page of 500 as of 5,000 changes ago", clock.instant() - start, ROUNDS);
}

fn report(what: &str, took: Duration, times: usize) {
    println!("{what:48}{:>10.2} µs", took.as_secs_f64() * 1e6 / times as f64);
}

/// 200 changes per second for some seconds, to 5,000 watchers in separate tasks.
async fn measure_fan_out(clock: Clock, label: &'static str, prefixes: bool) {
    let store = Arc::new(MemoryStore::new(clock.clone()));
    let watchers = (0..WATCHERS).map(|number| {
        let prefix = if prefixes { format!("namespace-{number:04}/") } else { String::new() };
        let watch = store.watch(pods().under(prefix), store.revision()).expect("a watch");
        tokio::spawn(count_events(watch))
    });
    let watchers: Vec<_> = watchers.collect();
    let (cpu, start, changes) = (process::cpu(), clock.instant(), CHANGES_PER_SECOND * 4);
    for number in 0..changes {
        clock.sleep_until(start + Duration::from_secs(1) * number / CHANGES_PER_SECOND).await;
        put(&store, number as usize, Expect::Absent).await;
    }
    let written: Instant = clock.instant();
    store.close().await;
    let mut events = 0;
    for watcher in watchers {
        events += watcher.await.expect("a watcher");
    }
    let drained = clock.instant() - written;
    let cpu = (process::cpu() - cpu).as_secs_f64();
    let share = 100.0 * cpu / (written - start).as_secs_f64();
    println!(
        "{WATCHERS} watchers of {label}, {CHANGES_PER_SECOND} changes/s: {share:.0}% of a core, {events} events, drained in {:.1} ms",
        drained.as_secs_f64() * 1e3
    );
}

async fn count_events(mut watch: Watch) -> usize {
    let mut events = 0;
    while let Ok(some) = watch.next().await {
        events += some.len();
    }
    events
}
