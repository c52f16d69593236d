//! An in-memory server for one kind, with injected faults in its watches.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream, StreamExt};
use parking_lot::Mutex;
use setpoint::source::{ObjectList, Selection, Source, WatchItem};
use setpoint::{ClientError, Key, Kind, Object};
use tokio::sync::watch;

type Items = BoxStream<'static, Result<WatchItem, ClientError>>;

/// A fault in a watch. Each watch takes one from a queue when it is opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// Opening the watch fails.
    Refused(u16),
    /// The watch ends after this time.
    CloseAfter(Duration),
    /// The watch ends after this many items.
    CloseAfterItems(usize),
    /// The watch returns 410 after this many items.
    ExpireAfterItems(usize),
    /// Every item is sent twice.
    Twice,
    /// Changes of this object are not sent.
    Hide(&'static str),
    /// An undecodable item is sent first.
    Undecodable,
    /// Every item is delayed by this much.
    Late(Duration),
}

#[derive(Clone)]
pub(crate) struct Server {
    state: Arc<Mutex<State>>,
    revision: watch::Sender<u64>,
    /// Counts how often all watches were cut.
    cuts: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    revision: u64,
    objects: BTreeMap<Key, Object>,
    log: Vec<(u64, Change)>,
    /// Versions up to this one are compacted.
    compacted: u64,
    faults: VecDeque<Fault>,
    list_errors: VecDeque<u16>,
    /// How many lists hang.
    hanging_lists: usize,
    /// The requests: `list`, `watch 5`.
    asked: Vec<String>,
}

#[derive(Clone)]
enum Change {
    Added(Object),
    Modified(Object),
    Deleted(Object),
    Bookmark,
}

impl Server {
    pub(crate) fn new() -> Self {
        Self { state: Arc::default(), revision: watch::Sender::default(), cuts: watch::Sender::default() }
    }

    pub(crate) fn put(&self, name: &str) -> Object {
        self.put_labelled(name, "")
    }

    /// Creates or updates `default/{name}`, with `label` as the value of its label `app`.
    pub(crate) fn put_labelled(&self, name: &str, label: &str) -> Object {
        self.commit(|state, revision| {
            let key = Key::namespaced("default", name);
            let old = state.objects.get(&key);
            let uid = old.map_or_else(|| format!("uid-{revision}"), |old| old.meta().uid.to_string());
            let json = format!(
                r#"{{"metadata":{{"name":"{name}","namespace":"default","uid":"{uid}","resourceVersion":"{revision}","labels":{{"app":"{label}"}}}}}}"#
            );
            let object = Object::from_json(Bytes::from(json)).unwrap();
            let existed = state.objects.insert(key, object.clone()).is_some();
            (if existed { Change::Modified(object.clone()) } else { Change::Added(object.clone()) }, object)
        })
    }

    pub(crate) fn delete(&self, name: &str) {
        self.commit(|state, revision| {
            let last = state.objects.remove(&Key::namespaced("default", name)).expect("it exists");
            let mut meta = last.meta().clone();
            meta.resource_version = revision.to_string().into();
            (Change::Deleted(Object::with_metadata(meta, last.raw().clone())), ())
        });
    }

    pub(crate) fn exists(&self, name: &str) -> bool {
        self.state.lock().objects.contains_key(&Key::namespaced("default", name))
    }

    /// Advances the version, as if an object of another kind had changed.
    pub(crate) fn bookmark(&self) {
        self.commit(|_, _| (Change::Bookmark, ()));
    }

    /// Compacts the history: watches from older versions get a 410.
    pub(crate) fn compact(&self) {
        let mut state = self.state.lock();
        state.compacted = state.revision;
    }

    /// Ends all watches.
    pub(crate) fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    pub(crate) fn fault(&self, faults: impl IntoIterator<Item = Fault>) {
        self.state.lock().faults.extend(faults);
    }

    pub(crate) fn fail_lists(&self, codes: impl IntoIterator<Item = u16>) {
        self.state.lock().list_errors.extend(codes);
    }

    /// Makes the next lists hang.
    pub(crate) fn hang_lists(&self, count: usize) {
        self.state.lock().hanging_lists = count;
    }

    pub(crate) fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    /// Returns `name@version` of all objects.
    pub(crate) fn world(&self) -> BTreeSet<String> {
        self.state.lock().objects.values().map(describe).collect()
    }

    /// Takes the requests since the last call.
    pub(crate) fn asked(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().asked)
    }

    fn commit<T>(&self, change: impl FnOnce(&mut State, u64) -> (Change, T)) -> T {
        let mut state = self.state.lock();
        state.revision += 1;
        let revision = state.revision;
        let (logged, result) = change(&mut state, revision);
        state.log.push((revision, logged));
        self.revision.send_replace(revision);
        result
    }

    /// Returns whether this list hangs.
    fn hangs(&self) -> bool {
        let mut state = self.state.lock();
        let hangs = state.hanging_lists > 0;
        state.hanging_lists -= usize::from(hangs);
        hangs
    }

    fn items_after(&self, version: u64, fault: Fault) -> Items {
        let changes = stream::unfold(
            (self.clone(), self.revision.subscribe(), version),
            |(server, mut revision, mut at)| async move {
                loop {
                    revision.borrow_and_update();
                    let next = server.state.lock().log.iter().find(|(revision, _)| *revision > at).cloned();
                    if let Some((found, change)) = next {
                        at = found;
                        return Some(((found, change), (server, revision, at)));
                    }
                    revision.changed().await.ok()?;
                }
            },
        );
        let hidden = if let Fault::Hide(name) = fault { Some(name) } else { None };
        let items = changes.filter_map(move |(revision, change)| async move {
            let item = match change {
                Change::Added(object) => WatchItem::Added(object),
                Change::Modified(object) => WatchItem::Modified(object),
                Change::Deleted(object) => WatchItem::Deleted(object),
                Change::Bookmark => WatchItem::Bookmark { resource_version: revision.to_string() },
            };
            (hidden.is_none() || object_of(&item).is_none_or(|object| Some(object.key().name()) != hidden))
                .then_some(item)
        });
        match fault {
            Fault::CloseAfter(time) => items.take_until(tokio::time::sleep(time)).map(Ok).boxed(),
            Fault::CloseAfterItems(count) => items.take(count).map(Ok).boxed(),
            Fault::ExpireAfterItems(count) => items
                .take(count)
                .map(Ok)
                .chain(stream::once(async { Err(api_error(410, "Expired")) }))
                .boxed(),
            Fault::Twice => items.flat_map(|item| stream::iter([again(&item), item])).map(Ok).boxed(),
            Fault::Undecodable => {
                let bad = WatchItem::Undecodable { error: "no name".into(), raw: Bytes::from_static(b"{}") };
                stream::iter([bad]).chain(items).map(Ok).boxed()
            }
            Fault::Late(delay) => items
                .then(move |item| async move {
                    tokio::time::sleep(delay).await;
                    Ok(item)
                })
                .boxed(),
            Fault::None | Fault::Hide(_) | Fault::Refused(_) => items.map(Ok).boxed(),
        }
    }
}

impl Source for Server {
    fn list<'a>(&'a self, _: &'a Kind, _: &'a Selection) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        Box::pin(async {
            if self.hangs() {
                return std::future::pending().await;
            }
            let mut state = self.state.lock();
            state.asked.push("list".into());
            if let Some(code) = state.list_errors.pop_front() {
                return Err(api_error(code, "Scripted"));
            }
            let objects = state.objects.values().cloned().collect();
            Ok(ObjectList { objects, resource_version: state.revision.to_string(), undecodable: 0 })
        })
    }

    fn watch<'a>(
        &'a self,
        _: &'a Kind,
        _: &'a Selection,
        version: &'a str,
    ) -> BoxFuture<'a, Result<Items, ClientError>> {
        Box::pin(async move {
            let version: u64 = version.parse().expect("a version of this server");
            let mut state = self.state.lock();
            state.asked.push(format!("watch {version}"));
            if version < state.compacted {
                return Err(api_error(410, "Expired"));
            }
            match state.faults.pop_front().unwrap_or(Fault::None) {
                Fault::Refused(code) => Err(api_error(code, "Scripted")),
                fault => {
                    drop(state);
                    let mut cuts = self.cuts.subscribe();
                    let cut = Box::pin(async move { cuts.changed().await });
                    Ok(self.items_after(version, fault).take_until(cut).boxed())
                }
            }
        })
    }
}

pub(crate) fn describe(object: &Object) -> String {
    format!("{}@{}", object.key().name(), object.meta().resource_version)
}

fn api_error(code: u16, reason: &str) -> ClientError {
    let (reason, message) = (reason.to_string(), "as scripted".to_string());
    ClientError::Api { code, reason, message, causes: Vec::new(), retry_after_seconds: None }
}

fn object_of(item: &WatchItem) -> Option<&Object> {
    match item {
        WatchItem::Added(object) | WatchItem::Modified(object) | WatchItem::Deleted(object) => Some(object),
        _ => None,
    }
}

fn again(item: &WatchItem) -> WatchItem {
    match item {
        WatchItem::Added(object) => WatchItem::Added(object.clone()),
        WatchItem::Modified(object) => WatchItem::Modified(object.clone()),
        WatchItem::Deleted(object) => WatchItem::Deleted(object.clone()),
        WatchItem::Bookmark { resource_version } => {
            WatchItem::Bookmark { resource_version: resource_version.clone() }
        }
        WatchItem::Undecodable { error, raw } => {
            WatchItem::Undecodable { error: error.clone(), raw: raw.clone() }
        }
    }
}
