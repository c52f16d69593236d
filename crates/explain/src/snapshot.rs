//! The known part of a cluster, and the reads that an explanation is missing.
//!
//! Explaining is pure, and its inputs depend on its findings. So it reads from a snapshot, which records every read
//! that misses. The caller fetches those and explains again, until nothing is missing.
//!
//! Invariants:
//! - An object is decoded at most once, and only if an explanation reads it.
//! - Dependents are found through an index by owner, not by a search.
//! - A failed fetch has a reason, and is not mistaken for a missing object.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use setpoint::Object;

use crate::kinds::{GroupKind, POD};
use crate::pods::Summary;
use crate::read::Read;

/// Something to fetch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Object {
        kind: GroupKind,
        namespace: Option<String>,
        name: String,
    },
    /// All objects of a kind, in a namespace or everywhere.
    List {
        kind: GroupKind,
        namespace: Option<String>,
    },
    /// The events about an object.
    Events {
        namespace: String,
        kind: String,
        name: String,
    },
    /// The last lines of a container's log, before its last restart if `previous`.
    Log {
        namespace: String,
        pod: String,
        container: String,
        previous: bool,
    },
    /// The state of an object in the queues of setpoint's controllers.
    Queues {
        kind: GroupKind,
        namespace: Option<String>,
        name: String,
    },
}

/// The result of fetching something.
#[derive(Clone, Debug)]
pub enum Answer {
    Objects(Vec<Object>),
    Text(String),
    Document(Value),
    /// The object does not exist.
    Missing,
    /// The cluster does not serve this.
    NotServed,
    /// The caller may not read this: the missing permission.
    Forbidden(String),
    /// It could not be read: why.
    Failed(String),
}

/// The state of a read.
enum Known {
    Yes,
    Missing,
    NotServed,
    Not(String),
}

/// An object, decoded on first use.
pub struct Item {
    pub kind: GroupKind,
    pub object: Object,
    value: OnceCell<Value>,
    pod: OnceCell<Summary>,
}

type Id = (GroupKind, Option<String>, String);

/// The result of looking for an object.
#[derive(Clone, Copy)]
pub enum Lookup<'a> {
    Found(&'a Item),
    /// It does not exist.
    Missing,
    /// It could not be read, or has not been read yet.
    Unknown,
}

impl<'a> Lookup<'a> {
    pub fn found(self) -> Option<&'a Item> {
        match self {
            Self::Found(item) => Some(item),
            _ => None,
        }
    }

    pub fn is_missing(self) -> bool {
        matches!(self, Self::Missing)
    }
}

/// A kind that the cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    pub kind: GroupKind,
    pub plural: String,
    pub namespaced: bool,
    pub listable: bool,
}

/// The known part of a cluster. It grows with what is fetched: at most the objects of the kinds and namespaces that
/// explainers list.
#[derive(Default)]
pub struct Snapshot {
    served: Vec<Served>,
    known: BTreeMap<Need, Known>,
    items: BTreeMap<Id, Item>,
    /// The dependents of each UID.
    owned: BTreeMap<Box<str>, Vec<Id>>,
    events: BTreeMap<Need, Vec<Value>>,
    texts: BTreeMap<Need, String>,
    documents: BTreeMap<Need, Value>,
    wanted: RefCell<BTreeSet<Need>>,
    /// The reads that failed, with the reason.
    denied: RefCell<BTreeSet<String>>,
}

impl Item {
    pub fn new(kind: GroupKind, object: Object) -> Self {
        Self { kind, object, value: OnceCell::new(), pod: OnceCell::new() }
    }

    pub fn name(&self) -> &str {
        self.object.key().name()
    }

    pub fn namespace(&self) -> Option<&str> {
        self.object.key().namespace()
    }

    pub fn uid(&self) -> &str {
        &self.object.meta().uid
    }

    /// Returns the summary of the pod.
    pub(crate) fn as_pod(&self) -> &Summary {
        self.pod.get_or_init(|| Summary::of(&self.object))
    }

    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| self.object.decode().unwrap_or_default())
    }
}

impl Read for Item {
    fn at(&self, path: &str) -> &Value {
        self.value().at(path)
    }
}

impl Snapshot {
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the kinds that the cluster serves.
    pub fn serving(mut self, served: Vec<Served>) -> Self {
        self.served = served;
        self
    }

    pub fn served(&self) -> &[Served] {
        &self.served
    }

    /// Whether a kind is known to be cluster-scoped.
    pub fn is_cluster_scoped(&self, kind: &GroupKind) -> bool {
        self.served.iter().any(|served| served.kind == *kind && !served.namespaced)
    }

    /// Returns the reads that are still missing.
    pub fn wanted(&self) -> Vec<Need> {
        let wanted = self.wanted.borrow();
        wanted.iter().filter(|need| !self.known.contains_key(need)).cloned().collect()
    }

    /// Clears the missing and the failed reads, before explaining again.
    pub fn begin(&self) {
        self.wanted.borrow_mut().clear();
        self.denied.borrow_mut().clear();
    }

    /// Returns the reads that failed.
    pub fn denied(&self) -> Vec<String> {
        self.denied.borrow().iter().cloned().collect()
    }

    /// Adds the result of a fetch.
    pub fn add(&mut self, need: Need, answer: Answer) {
        let known = match answer {
            Answer::Objects(objects) => {
                self.add_objects(&need, objects);
                Known::Yes
            }
            Answer::Text(text) => {
                self.texts.insert(need.clone(), text);
                Known::Yes
            }
            Answer::Document(document) => {
                self.documents.insert(need.clone(), document);
                Known::Yes
            }
            Answer::Missing => Known::Missing,
            Answer::NotServed => Known::NotServed,
            Answer::Forbidden(why) | Answer::Failed(why) => Known::Not(why),
        };
        self.known.insert(need, known);
    }

    fn add_objects(&mut self, need: &Need, objects: Vec<Object>) {
        match need {
            Need::Object { kind, .. } | Need::List { kind, .. } => {
                objects.into_iter().for_each(|object| self.add_object(kind, object));
            }
            _ => {
                let events = objects.iter().filter_map(|event| event.decode().ok()).collect();
                self.events.insert(need.clone(), events);
            }
        }
    }

    fn add_object(&mut self, kind: &GroupKind, object: Object) {
        let id = (kind.clone(), object.key().namespace().map(str::to_owned), object.key().name().to_owned());
        if self.items.contains_key(&id) {
            return;
        }
        for owner in object.meta().owner_references.iter() {
            self.owned.entry(owner.uid.clone()).or_default().push(id.clone());
        }
        self.items.insert(id, Item::new(kind.clone(), object));
    }

    /// Looks for an object.
    pub fn get(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> Lookup<'_> {
        let id = (kind.clone(), namespace.map(str::to_owned), name.to_owned());
        if let Some(item) = self.items.get(&id) {
            return Lookup::Found(item);
        }
        let everywhere = Need::List { kind: kind.clone(), namespace: None };
        let list = Need::List { kind: kind.clone(), namespace: id.1.clone() };
        for listed in [list, everywhere] {
            if matches!(self.known.get(&listed), Some(Known::Yes)) {
                return Lookup::Missing;
            }
        }
        let need = Need::Object { kind: kind.clone(), namespace: id.1, name: id.2 };
        match self.known.get(&need) {
            Some(Known::Missing | Known::Yes) => Lookup::Missing,
            Some(Known::NotServed) => Lookup::Unknown,
            Some(Known::Not(why)) => {
                self.denied.borrow_mut().insert(why.clone());
                Lookup::Unknown
            }
            None => {
                self.wanted.borrow_mut().insert(need);
                Lookup::Unknown
            }
        }
    }

    /// Lists the objects of a kind in a namespace, or everywhere. `None` if they could not be read, or have not been.
    pub fn list(&self, kind: &GroupKind, namespace: Option<&str>) -> Option<Vec<&Item>> {
        if !self.is_listed(kind, namespace) {
            return None;
        }
        let (from, to) = match namespace {
            Some(namespace) => (Some(namespace.to_owned()), Some(namespace.to_owned() + "\0")),
            None => (None, None),
        };
        let from = (kind.clone(), from, String::new());
        let items = self.items.range(from..).map(|(_, item)| item);
        let items = items.take_while(|item| item.kind == *kind);
        Some(match to {
            Some(end) => items.take_while(|item| item.namespace() < Some(end.as_str())).collect(),
            None => items.collect(),
        })
    }

    /// Whether a list is known. If not, records it as missing.
    fn is_listed(&self, kind: &GroupKind, namespace: Option<&str>) -> bool {
        let everywhere = Need::List { kind: kind.clone(), namespace: None };
        if matches!(self.known.get(&everywhere), Some(Known::Yes)) {
            return true;
        }
        let need = Need::List { kind: kind.clone(), namespace: namespace.map(str::to_owned) };
        match self.known.get(&need) {
            Some(Known::Yes) => true,
            Some(Known::Missing | Known::NotServed) => false,
            Some(Known::Not(why)) => {
                self.denied.borrow_mut().insert(why.clone());
                false
            }
            None => {
                self.wanted.borrow_mut().insert(need);
                false
            }
        }
    }

    /// Whether the cluster does not serve this kind at all.
    pub fn is_not_served(&self, kind: &GroupKind, namespace: Option<&str>) -> bool {
        let list = Need::List { kind: kind.clone(), namespace: namespace.map(str::to_owned) };
        matches!(self.known.get(&list), Some(Known::NotServed))
    }

    /// Lists the objects of a kind that name this object as an owner. They are in its namespace, or anywhere if it has
    /// none.
    pub fn owned(&self, owner: &Item, kind: &GroupKind) -> Option<Vec<&Item>> {
        if !self.is_listed(kind, owner.namespace()) {
            return None;
        }
        let ids = self.owned.get(owner.uid()).into_iter().flatten().filter(|id| id.0 == *kind);
        Some(ids.filter_map(|id| self.items.get(id)).collect())
    }

    /// Returns the events about an object, the latest first.
    pub fn events(&self, kind: &GroupKind, namespace: Option<&str>, name: &str, uid: &str) -> Vec<Event<'_>> {
        let namespace = namespace.unwrap_or("default").to_owned();
        let need = Need::Events { namespace, kind: kind.kind.to_string(), name: name.to_owned() };
        let Some(known) = self.known.get(&need) else {
            self.wanted.borrow_mut().insert(need);
            return Vec::new();
        };
        if let Known::Not(why) = known {
            self.denied.borrow_mut().insert(why.clone());
        }
        // Events about nodes have the node's name instead of its UID, or none.
        let concerns = |event: &Event<'_>| {
            let about = event.value.text("/involvedObject/uid");
            about.is_empty() || uid.is_empty() || about == uid || about == name
        };
        let events = self.events.get(&need).into_iter().flatten().map(|value| Event { value });
        let mut events: Vec<Event<'_>> = events.filter(concerns).collect();
        events.sort_by_key(|event| std::cmp::Reverse(event.time()));
        events
    }

    /// Returns the last lines of a container.
    pub fn log(&self, pod: &Item, container: &str, previous: bool) -> Option<&str> {
        let need = Need::Log {
            namespace: pod.namespace().unwrap_or_default().to_owned(),
            pod: pod.name().to_owned(),
            container: container.to_owned(),
            previous,
        };
        if !self.known.contains_key(&need) {
            self.wanted.borrow_mut().insert(need.clone());
        }
        self.texts.get(&need).map(String::as_str)
    }

    /// Returns the state of an object in the queues of setpoint's controllers, if it is available.
    pub fn queues(&self, item: &Item) -> Option<&Value> {
        let need = Need::Queues {
            kind: item.kind.clone(),
            namespace: item.namespace().map(str::to_owned),
            name: item.name().to_owned(),
        };
        if !self.known.contains_key(&need) {
            self.wanted.borrow_mut().insert(need.clone());
        }
        self.documents.get(&need)
    }

    /// Lists the encoded objects of a kind everywhere, for the scheduler's checks.
    pub fn objects(&self, kind: &GroupKind) -> Vec<Object> {
        self.list(kind, None).into_iter().flatten().map(|item| item.object.clone()).collect()
    }

    /// Lists the pods on a node.
    pub fn pods_on(&self, node: &str) -> Option<Vec<&Item>> {
        let pods = self.list(&POD, None)?;
        Some(
            pods.into_iter()
                .filter(|pod| pod.object.contains_text(node) && pod.text("/spec/nodeName") == node)
                .collect(),
        )
    }
}

/// An event about an object.
#[derive(Clone, Copy)]
pub struct Event<'a> {
    pub value: &'a Value,
}

impl<'a> Event<'a> {
    pub fn reason(&self) -> &'a str {
        self.value.text("/reason")
    }

    pub fn message(&self) -> &'a str {
        match self.value.text("/message") {
            "" => self.value.text("/note"),
            message => message,
        }
    }

    pub fn is_warning(&self) -> bool {
        self.value.text("/type") == "Warning"
    }

    /// Returns when it was last seen.
    pub fn time(&self) -> Option<jiff::Timestamp> {
        let fields = ["/series/lastObservedTime", "/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"];
        let last = fields.iter().find_map(|field| self.value.time(field));
        last.or_else(|| self.value.time("/metadata/creationTimestamp"))
    }

    /// Returns how often it was seen.
    pub fn times(&self) -> i64 {
        let counts = ["/series/count", "/count", "/deprecatedCount"];
        counts.iter().filter_map(|field| self.value.number(field)).max().unwrap_or(1).max(1)
    }
}
