//! Related objects: those that a customize hook selects, and the parents that a change to such an object affects.
//!
//! The hook's response is cached while the parent's spec is unchanged, for at most twenty minutes. The kinds that any
//! parent selects are watched until the controller stops.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use setpoint::handler::{Handler, enqueue_mapped, predicate};
use setpoint::informer::Registration;
use setpoint::source::Selection;
use setpoint::{Informer, Instant, Key, Kind, Labels, Metadata, Object, Queue};

use super::reconcile::{Failure, Parents, Pass};
use super::setup::{ParentKey, full};
use super::watch::SharedInformers;
use crate::call::Caller;
use crate::model::HookVersion;
use crate::names::namespace_kind;
use crate::related::{RelatedRule, Visibility};
use crate::wire::{CustomizeRequest, Objects, read_customize};

const LASTS: Duration = Duration::from_secs(20 * 60);
/// How long a reconcile waits for a cache that has just been requested. Then it is requeued.
const SYNCED_WITHIN: Duration = Duration::from_secs(1);
/// The maximum number of related kinds per controller.
const MAX_KINDS: usize = 256;

/// The related objects of parents.
pub(crate) struct Related {
    informers: SharedInformers,
    queue: Queue<ParentKey>,
    asked: Arc<Asked>,
    /// Bounded by [`MAX_KINDS`].
    followed: Mutex<BTreeMap<Kind, (Informer, Registration)>>,
}

/// Bounded by the number of parents.
#[derive(Default)]
struct Asked {
    answers: Mutex<BTreeMap<ParentKey, Answer>>,
    namespaces: Mutex<Option<Informer>>,
}

#[derive(Clone)]
struct Answer {
    uid: Box<str>,
    spec: SpecVersion,
    until: Instant,
    version: HookVersion,
    rules: Arc<[(RelatedRule, Kind)]>,
}

/// A value that changes with the spec of an object: its generation, or its resource version if its kind has none.
#[derive(Clone, Debug, PartialEq, Eq)]
enum SpecVersion {
    Generation(i64),
    ResourceVersion(Box<str>),
}

impl SpecVersion {
    fn of(object: &Metadata) -> Self {
        match object.generation {
            generation if generation > 0 => Self::Generation(generation),
            _ => Self::ResourceVersion(object.resource_version.clone()),
        }
    }
}

impl Related {
    pub(crate) fn new(informers: &SharedInformers, queue: &Queue<ParentKey>) -> Self {
        let (asked, followed) = Default::default();
        Self { informers: informers.clone(), queue: queue.clone(), asked, followed }
    }

    pub(super) fn forget(&self, parent: &ParentKey) {
        self.asked.answers.lock().remove(parent);
    }

    /// Stops watching. Returns the removed watches.
    pub(crate) fn end(&self) -> Vec<(Informer, Registration)> {
        std::mem::take(&mut *self.followed.lock()).into_values().collect()
    }

    /// Returns the cache of a related kind. It may not have synced yet.
    fn follow(&self, kind: &Kind) -> Result<Informer, String> {
        let mut followed = self.followed.lock();
        if let Some((informer, _)) = followed.get(kind) {
            return Ok(informer.clone());
        }
        if followed.len() >= MAX_KINDS {
            return Err(format!("parents ask for more than {MAX_KINDS} related kinds"));
        }
        let (asked, of) = (self.asked.clone(), kind.clone());
        let handler = enqueue_mapped(&self.queue, move |object: &Object| asked.parents_of(&of, object));
        let handler = handler.when(predicate::version_changed());
        let (informer, registration) = self.informers.change(|informers| {
            let informer = informers.select(kind, Selection::default());
            let registration = informer.add_handler(handler);
            (informer, registration)
        });
        followed.insert(kind.clone(), (informer.clone(), registration));
        Ok(informer)
    }
}

impl Asked {
    /// Returns the parents that an object is related to.
    fn parents_of(&self, kind: &Kind, object: &Object) -> Vec<ParentKey> {
        let is_namespace = *kind == namespace_kind();
        let answers = self.answers.lock();
        let concerned = answers.iter().filter(|(parent, answer)| {
            answer.rules.iter().any(|(rule, of)| {
                let visibility = visibility(parent, answer.version, of);
                let is_selected = of == kind
                    && rule.selects(visibility, object.key(), &object.meta().labels, |name| {
                        self.labels_of(name)
                    });
                // A namespace may start or stop being selected.
                is_selected || is_namespace && rule.namespace_selector.is_some()
            })
        });
        concerned.map(|(parent, _)| parent.clone()).collect()
    }

    fn labels_of(&self, namespace: &str) -> Option<Labels> {
        let namespaces = self.namespaces.lock().clone()?;
        Some(namespaces.objects().get(&Key::cluster(namespace))?.meta().labels.clone())
    }
}

fn visibility<'a>(parent: &'a ParentKey, version: HookVersion, kind: &Kind) -> Visibility<'a> {
    Visibility { version, namespace: parent.key.namespace(), namespaced: kind.namespaced() }
}

impl Parents {
    /// Returns the objects that are related to a parent. `parent` may be an earlier revision of it.
    pub(super) async fn related(&self, pass: &Pass, parent: &Value) -> Result<Objects, Failure> {
        let mut related = Objects::default();
        let Some(hook) = &self.setup.customize else { return Ok(related) };
        let answer = self.ask(hook, pass, parent).await?;
        for (rule, kind) in answer.rules.iter() {
            let visibility = visibility(&pass.at, answer.version, kind);
            rule.check_for(visibility)
                .map_err(|why| Failure::of(format!("related {}: {why}", rule.resource)))?;
            let informer = self.synced(kind).await?;
            if rule.namespace_selector.is_some() {
                let namespaces = self.synced(&namespace_kind()).await?;
                *self.wiring.related.asked.namespaces.lock() = Some(namespaces);
            }
            related.declare(kind);
            let asked = &self.wiring.related.asked;
            for object in informer.objects().list(rule.only_namespace(visibility)) {
                if rule.selects(visibility, object.key(), &object.meta().labels, |name| asked.labels_of(name))
                {
                    related.insert(kind, object.key().clone(), full(kind, &object));
                }
            }
        }
        Ok(related)
    }

    async fn synced(&self, kind: &Kind) -> Result<Informer, Failure> {
        let informer = self.wiring.related.follow(kind).map_err(Failure::of)?;
        let syncing = tokio::time::timeout(SYNCED_WITHIN, informer.wait_for_sync());
        syncing.await.map_err(|_| Failure::NotSynced)?;
        Ok(informer)
    }

    async fn ask(&self, hook: &Caller, pass: &Pass, parent: &Value) -> Result<Answer, Failure> {
        let (meta, now) = (pass.parent.meta(), self.wiring.clock.instant());
        let is_current = pass.parent_value() == parent;
        let answers = &self.wiring.related.asked.answers;
        if is_current {
            let known = answers.lock().get(&pass.at).cloned();
            let is_valid = |known: &Answer| {
                known.uid == meta.uid && known.spec == SpecVersion::of(meta) && now < known.until
            };
            if let Some(known) = known.filter(is_valid) {
                return Ok(known);
            }
        }
        let request = CustomizeRequest { controller: &self.setup.object, parent }.encode();
        let rules = self.unless_stopped(hook.call(parent, &request, read_customize)).await?;
        let mut resolved = Vec::with_capacity(rules.len());
        for rule in rules {
            let kind = self.wiring.kinds.resolve(&rule.api_version, &rule.resource).await?;
            resolved.push((rule, kind));
        }
        let answer = Answer {
            uid: meta.uid.clone(),
            spec: SpecVersion::of(meta),
            until: now + LASTS,
            version: hook.version(),
            rules: resolved.into(),
        };
        if is_current {
            answers.lock().insert(pass.at.clone(), answer.clone());
        }
        Ok(answer)
    }
}
