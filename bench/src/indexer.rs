//! Compares data structures for the cache: a lock around trees, and a persistent tree with snapshots for readers.
//!
//! With snapshots, a reader never waits. But every change copies the nodes on its path, and a reader that holds a
//! snapshot keeps old nodes alive. The lock is held while a result is cloned.

use std::hint::black_box;
use std::sync::Arc;

use bytes::Bytes;
use imbl::OrdMap;
use parking_lot::RwLock;
use setpoint::indexer::Indexer;
use setpoint::{Key, Object};

use crate::pods::pod;
use crate::process;
use crate::report::{Report, grouped, per_call};

const PODS: usize = 10_000;

/// The alternative: persistent maps that share unchanged parts.
#[derive(Clone, Default)]
struct Snapshot {
    objects: OrdMap<Key, Object>,
    by_owner: OrdMap<Arc<str>, OrdMap<Key, Object>>,
}

impl Snapshot {
    fn upsert(&mut self, object: Object) {
        let owner: Arc<str> = object.meta().controller().map_or("".into(), |owner| (&*owner.uid).into());
        self.by_owner.entry(owner).or_default().insert(object.key().clone(), object.clone());
        self.objects.insert(object.key().clone(), object);
    }
}

pub(crate) fn run() {
    let objects: Vec<Object> =
        (0..PODS).map(|number| Object::from_json(Bytes::from(pod(number, 1))).expect("a pod")).collect();
    let owner = objects[7].meta().controller().map(|owner| owner.uid.to_string()).unwrap_or_default();
    let key = objects[PODS / 2].key().clone();

    let before = process::allocated();
    let mut indexer: Indexer = objects.iter().cloned().collect();
    indexer.add_index(
        "owner",
        Arc::new(|pod| pod.meta().controller().map(|owner| owner.uid.to_string()).into_iter().collect()),
    );
    let trees = process::allocated() - before;

    let before = process::allocated();
    let mut snapshot = Snapshot::default();
    objects.iter().cloned().for_each(|object| snapshot.upsert(object));
    let shared = process::allocated() - before;
    let snapshot = RwLock::new(snapshot);
    let current = || snapshot.read().clone();

    let title =
        format!("{} pods, an index by owner, 50 pods each (ns, but for the bytes)", grouped(PODS as u64));
    let mut report = Report::new(&title, &["locked trees", "snapshots"]);
    report.row(
        "get",
        [per_call(100_000, || indexer.get(&key)), per_call(100_000, || current().objects.get(&key).cloned())],
    );
    report.row(
        "list 50 by index",
        [
            per_call(20_000, || indexer.indexed("owner", &owner)),
            per_call(20_000, || {
                current().by_owner.get(&*owner).map(|found| found.values().cloned().collect::<Vec<_>>())
            }),
        ],
    );
    report.row(
        "list 1,000 of a namespace",
        [
            per_call(500, || indexer.list(Some("team-3"))),
            per_call(500, || {
                let snapshot = current();
                let from = snapshot.objects.range(Key::namespaced("team-3", "")..);
                from.take_while(|(key, _)| key.namespace() == Some("team-3"))
                    .map(|(_, pod)| pod.clone())
                    .collect::<Vec<_>>()
            }),
        ],
    );
    let mut turn = objects.iter().cycle();
    let mut next = || turn.next().cloned().expect("it goes round");
    report.row(
        "change with no reader",
        [per_call(50_000, || indexer.extend([next()])), per_call(50_000, || snapshot.write().upsert(next()))],
    );
    let mut held = Snapshot::default();
    report.row(
        "change while a reader holds its result",
        [
            per_call(50_000, || indexer.extend([next()])),
            per_call(50_000, || {
                held = current();
                snapshot.write().upsert(next());
            }),
        ],
    );
    drop(black_box(held));
    report.row("bytes a pod, beside the pod", [(trees / PODS) as u64, (shared / PODS) as u64]);
    report.print();
}
