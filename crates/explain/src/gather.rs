//! Fetches the objects that an explanation needs, until nothing is missing.
//!
//! Invariants:
//! - Read-only: get and list, logs, and the introspection API.
//! - Objects are fetched concurrently, within a limit; lists are read in pages.
//! - A denied read is not an error: the explanation names the missing permission.

use std::sync::atomic::{AtomicBool, Ordering};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use serde_json::Value;
use setpoint::discovery::Discovered;
use setpoint::source::Selection;
use setpoint::{Client, ClientError, Key, Kind};

use crate::kinds::{EVENT, GroupKind};
use crate::model::{Explanation, ObjectRef};
use crate::snapshot::{Answer, Need, Served, Snapshot};

/// The maximum number of rounds. Each object on the longest path takes at most three: for itself, for its events and
/// dependents, and for the objects that those refer to.
const MAX_ROUNDS: usize = 32;
/// Concurrent requests: enough to hide round trips, too few to load the server.
const CONCURRENCY: usize = 16;
/// The maximum number of fetches. An explanation names at most 200 objects.
const MAX_FETCHED: usize = 2_000;
/// How much of a log is read: the last lines are the relevant ones.
const LOG_LINES: &str = "10";
const LOG_BYTES: &str = "8192";

/// The source of an explanation's data.
pub trait Source: Sync {
    /// The served kinds.
    fn served(&self) -> Vec<Served>;

    /// Fetches something.
    fn fetch(&self, need: &Need) -> impl Future<Output = Answer>;
}

/// Explains an object with the data of `source`. `now` is called after each round, because fetching takes time.
pub async fn explain(source: &impl Source, target: &ObjectRef, now: impl Fn() -> Timestamp) -> Explanation {
    let mut snapshot = Snapshot::new().serving(source.served());
    let mut fetched = 0;
    for _ in 0..MAX_ROUNDS {
        let explanation = crate::explain(&snapshot, target, now());
        let wanted = snapshot.wanted();
        fetched += wanted.len();
        if wanted.is_empty() || fetched > MAX_FETCHED {
            return explanation;
        }
        let answers = stream::iter(wanted.into_iter().map(|need| async {
            let answer = source.fetch(&need).await;
            (need, answer)
        }));
        let answers: Vec<_> = answers.buffer_unordered(CONCURRENCY).collect().await;
        answers.into_iter().for_each(|(need, answer)| snapshot.add(need, answer));
    }
    crate::explain(&snapshot, target, now())
}

/// A cluster, through its API server.
pub struct ClusterSource {
    client: Client,
    discovered: Discovered,
    /// Whether the API server is known to have no introspection API.
    has_no_queues: AtomicBool,
}

impl ClusterSource {
    pub fn new(client: Client, discovered: Discovered) -> Self {
        Self { client, discovered, has_no_queues: AtomicBool::new(false) }
    }

    fn kind(&self, kind: &GroupKind) -> Option<&Kind> {
        let is_it = |served: &&Kind| served.group() == kind.group && served.kind() == kind.kind;
        self.discovered.preferred().map(|resource| &resource.kind).find(is_it)
    }

    async fn object(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> Answer {
        let served = match self.kind_or_answer(kind) {
            Ok(served) => served,
            Err(answer) => return answer,
        };
        let key = Key::in_namespace(namespace.filter(|_| served.namespaced()), name);
        match self.client.get(served, &key).await {
            Ok(object) => Answer::Objects(vec![object]),
            Err(error) => refused(&error, &format!("get {}", served.plural())),
        }
    }

    async fn list(&self, kind: &GroupKind, selection: &Selection) -> Answer {
        let served = match self.kind_or_answer(kind) {
            Ok(served) => served,
            Err(answer) => return answer,
        };
        let selection = Selection {
            namespace: selection.namespace.clone().filter(|_| served.namespaced()),
            ..selection.clone()
        };
        match self.client.list(served, &selection).await {
            Ok(list) => Answer::Objects(list.objects),
            Err(error) => refused(&error, &format!("list {}", served.plural())),
        }
    }

    /// Returns the served kind, or why there is none.
    fn kind_or_answer(&self, kind: &GroupKind) -> Result<&Kind, Answer> {
        self.kind(kind).ok_or_else(|| match self.discovered.failed_group(&kind.group) {
            true => Answer::Failed(format!("{kind}: the API group could not be discovered")),
            false => Answer::NotServed,
        })
    }

    async fn log(&self, namespace: &str, pod: &str, container: &str, previous: bool) -> Answer {
        let path = ["api", "v1", "namespaces", namespace, "pods", pod, "log"];
        let query = [
            ("container", Some(container)),
            ("previous", previous.then_some("true")),
            ("tailLines", Some(LOG_LINES)),
            ("limitBytes", Some(LOG_BYTES)),
        ];
        match self.client.get_path(&path, &query).await {
            Ok(text) => Answer::Text(String::from_utf8_lossy(&text).into_owned()),
            // A log is optional: the node may be gone, and the container may not have run.
            Err(_) => Answer::Missing,
        }
    }

    async fn queues(&self, kind: &GroupKind, namespace: Option<&str>, name: &str) -> Answer {
        if self.has_no_queues.load(Ordering::Relaxed) {
            return Answer::NotServed;
        }
        let path = ["debug", "setpoint", "keys"];
        let query = [
            ("group", Some(&*kind.group)),
            ("kind", Some(&*kind.kind)),
            ("namespace", namespace),
            ("name", Some(name)),
        ];
        let answer = self.client.get_path(&path, &query).await;
        let document = answer.ok().and_then(|answer| serde_json::from_slice::<Value>(&answer).ok());
        match document {
            Some(document) => Answer::Document(document),
            None => {
                self.has_no_queues.store(true, Ordering::Relaxed);
                Answer::NotServed
            }
        }
    }
}

fn refused(error: &ClientError, what: &str) -> Answer {
    match error {
        error if error.is_not_found() => Answer::Missing,
        error if error.is_forbidden() => Answer::Forbidden(format!("{what}: {error}")),
        error => Answer::Failed(format!("{what}: {error}")),
    }
}

impl Source for ClusterSource {
    fn served(&self) -> Vec<Served> {
        let served = self.discovered.preferred().map(|resource| Served {
            kind: GroupKind::named(resource.kind.group(), resource.kind.kind()),
            plural: resource.kind.plural().to_owned(),
            namespaced: resource.kind.namespaced(),
            listable: resource.supports(&["list", "get"]),
        });
        served.collect()
    }

    async fn fetch(&self, need: &Need) -> Answer {
        match need {
            Need::Object { kind, namespace, name } => self.object(kind, namespace.as_deref(), name).await,
            Need::List { kind, namespace } => {
                let selection = Selection { namespace: namespace.clone(), ..Selection::default() };
                self.list(kind, &selection).await
            }
            Need::Events { namespace, kind, name } => {
                let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
                let selection = Selection {
                    namespace: Some(namespace.clone()),
                    fields: Some(fields),
                    ..Selection::default()
                };
                self.list(&EVENT, &selection).await
            }
            Need::Log { namespace, pod, container, previous } => {
                self.log(namespace, pod, container, *previous).await
            }
            Need::Queues { kind, namespace, name } => self.queues(kind, namespace.as_deref(), name).await,
        }
    }
}
