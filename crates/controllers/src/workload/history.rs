//! The template history of StatefulSets and DaemonSets, stored as ControllerRevisions.
//!
//! Invariants:
//! - a revision's name is derived from its template, so creating it twice creates one;
//! - two revisions are equal if they produce the same pods;
//! - an owner's revisions are only used once the cache shows all earlier writes, because the next revision number
//!   depends on the existing ones.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use setpoint::client::{DeleteOptions, Subresource};
use setpoint::object::DecodeError;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, ClientError, Event, Informer, Key, Kind, Labels, Object, OwnerRef, Queue, ReconcileError,
    UpdateBody,
};

use super::dependents::Dependents;
use super::owners::{Owner, Owners};
use super::template::{PodTemplate, TemplateMetadata};
use setpoint::write_tracker::WriteTracker;

/// The pod label with the revision.
pub(crate) const REVISION_LABEL: &str = "controller-revision-hash";

/// The maximum length of the owner's part of a revision name.
const MAX_PREFIX: usize = 223;

/// A ControllerRevision.
#[derive(Clone, Debug)]
pub(crate) struct Revision {
    pub(crate) number: i64,
    /// `None` if the saved data is not a template.
    pub(crate) template: Option<PodTemplate>,
}

setpoint::view!(Revision of k8s_openapi::api::apps::v1::ControllerRevision);

impl<'de> Deserialize<'de> for Revision {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Encoded {
            #[serde(default)]
            revision: i64,
            #[serde(default)]
            data: Option<Box<RawValue>>,
        }
        #[derive(Deserialize)]
        struct Data {
            spec: Spec,
        }
        #[derive(Deserialize)]
        struct Spec {
            template: PodTemplate,
        }
        let Encoded { revision, data } = Encoded::deserialize(deserializer)?;
        let data = data.and_then(|data| serde_json::from_str::<Data>(data.get()).ok());
        Ok(Self { number: revision, template: data.map(|data| data.spec.template) })
    }
}

impl Revision {
    /// Whether it produces the same pods as a template.
    pub(crate) fn is_of(&self, template: &PodTemplate) -> bool {
        self.template.as_ref().is_some_and(|own| own.same_pods_as(template))
    }
}

/// Sorts oldest first.
pub(crate) fn sort(revisions: &mut [Cached<Revision>]) {
    revisions.sort_by(|a, b| by_age(a).cmp(&by_age(b)));
}

fn by_age(revision: &Cached<Revision>) -> (i64, Option<jiff::Timestamp>, &str) {
    (revision.number, revision.meta().creation_timestamp, &revision.meta().name)
}

/// Returns the name of an owner's revision with this hash.
pub(crate) fn revision_name(owner: &str, hash: &str) -> String {
    format!("{}-{hash}", owner.get(..MAX_PREFIX).unwrap_or(owner))
}

/// A revision to create.
pub(crate) struct NewRevision<'a> {
    pub(crate) name: String,
    pub(crate) labels: Labels,
    pub(crate) annotations: &'a std::collections::BTreeMap<String, String>,
    pub(crate) owner: OwnerRef,
    pub(crate) template: &'a PodTemplate,
    pub(crate) number: i64,
}

/// Reads and writes revisions. Cheap to clone.
#[derive(Clone)]
pub(crate) struct RevisionStore {
    client: Client,
    kind: Kind,
    revisions: Dependents<Revision>,
    writes: Arc<WriteTracker<Key>>,
}

/// The result of creating a revision.
pub(crate) enum Made {
    /// It exists: created now, or earlier and not in the cache yet.
    Revision(Cached<Revision>),
    /// Another template has its name.
    Collision,
}

impl RevisionStore {
    /// Adds the required indexes to the informer of revisions.
    pub(crate) fn new(client: Client, revisions: &Informer) -> Self {
        Self {
            client,
            kind: Kind::of::<Revision>(),
            revisions: Dependents::of(revisions),
            writes: Arc::new(WriteTracker::new(revisions)),
        }
    }

    /// Lists the revisions of an owner and adoptable orphans. `None` while the cache does not show all earlier writes.
    pub(crate) fn claimable_by(&self, owner: &Object) -> Result<Option<Vec<Cached<Revision>>>, DecodeError> {
        self.writes.list_if_caught_up(owner.key(), || self.revisions.claimable_by(owner.meta()))
    }

    /// Enqueues the owners that a revision event concerns.
    pub(crate) fn follow<V: Owner>(&self, revisions: &Informer, queue: &Queue<Key>, owners: &Informer) {
        let (revision_store, queue, owners) =
            (self.clone(), queue.clone(), Owners::<V>::new(owners.lister()));
        revisions.add_handler(move |event: &Event| {
            revision_store.concerned_by(&owners, event).into_iter().for_each(|owner| queue.add(owner));
        });
    }

    /// Returns the owners to enqueue. A revision newly created for an owner enqueues it only if its controller is
    /// waiting for that write.
    fn concerned_by<V: Owner>(&self, owners: &Owners<V>, event: &Event) -> Vec<Key> {
        let has_owner = event.object().meta().controller().is_some();
        let is_made = has_owner && matches!(event, Event::Added { initial: false, .. });
        let mut keys = owners.concerned_by(event);
        keys.retain(|owner| {
            self.writes.should_reconcile(owner, event) && (!is_made || self.writes.is_waiting(owner))
        });
        keys
    }

    /// Forgets a deleted owner.
    pub(crate) fn forget(&self, owner: &Key) {
        self.writes.forget(owner);
    }

    pub(crate) async fn make(&self, owner: &Object, new: &NewRevision<'_>) -> Result<Made, ReconcileError> {
        let key = owner.key().sibling(&*new.name);
        let made = match self.client.create(&self.kind, owner.key().namespace(), &new.body()).await {
            Ok(made) => {
                self.writes.record_write(owner.key(), &made);
                Cached::new(made)?
            }
            Err(error) if error.is_already_exists() => {
                let found =
                    self.client.get(&self.kind, &key).await.attempting(format!("get revision {key}"))?;
                let found = Cached::<Revision>::new(found)?;
                if !found.is_of(new.template) {
                    return Ok(Made::Collision);
                }
                found
            }
            Err(error) => return Err(error.into_reconcile_error(format!("create revision {key}"))),
        };
        Ok(Made::Revision(made))
    }

    /// Makes a revision the newest by giving it the next number.
    pub(crate) async fn renumber(
        &self,
        owner: &Key,
        revision: &Cached<Revision>,
        number: i64,
    ) -> Result<Cached<Revision>, ReconcileError> {
        let body = UpdateBody::of(revision.object()).set(&["revision"], &number);
        let key = revision.key();
        let updated = self.client.update(&self.kind, key, Subresource::None, &body).await;
        let updated = updated.attempting(format!("renumber revision {key}"))?;
        self.writes.record_write(owner, &updated);
        Ok(Cached::new(updated)?)
    }

    pub(crate) async fn delete(
        &self,
        owner: &Key,
        revision: &Cached<Revision>,
    ) -> Result<(), ReconcileError> {
        let delete = DeleteOptions::of_uid(revision.meta().uid.to_string());
        let deleted: Result<(), ClientError> = self.client.delete(&self.kind, revision.key(), &delete).await;
        match deleted {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => {
                deleted.attempting(format!("delete revision {}", revision.key()))?;
                self.writes.record_delete(owner, &revision.meta().uid);
                Ok(())
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata<'a>,
    data: Box<RawValue>,
    revision: i64,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    name: &'a str,
    labels: &'a Labels,
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    annotations: &'a std::collections::BTreeMap<String, String>,
    owner_references: [&'a OwnerRef; 1],
}

/// A patch that restores the template.
#[derive(Serialize)]
struct Data<'a> {
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Spec<'a> {
    template: Saved<'a>,
}

#[derive(Serialize)]
struct Saved<'a> {
    #[serde(rename = "$patch")]
    patch: &'static str,
    metadata: &'a TemplateMetadata,
    spec: &'a RawValue,
}

impl NewRevision<'_> {
    fn body(&self) -> Body<'_> {
        let Self { name, labels, annotations, owner, template, number } = self;
        let saved = Saved { patch: "replace", metadata: &template.metadata, spec: &template.spec };
        Body {
            api_version: "apps/v1",
            kind: "ControllerRevision",
            metadata: Metadata { name, labels, annotations, owner_references: [owner] },
            data: canonical(&Data { spec: Spec { template: saved } }),
            revision: *number,
        }
    }
}

/// Encodes the data exactly as kube-apiserver does. It compares the bytes of a revision's data and re-encodes them on
/// every patch; with any other encoding the data would seem to change, which is forbidden.
fn canonical(data: &Data<'_>) -> Box<RawValue> {
    let sorted = serde_json::to_value(data).and_then(|data| serde_json::to_string(&data));
    let encoded = sorted.expect("a template is JSON, and its keys are texts");
    let escaped = encoded.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026");
    let escaped = escaped.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    RawValue::from_string(escaped).expect("these characters stand in strings only, where they may be escaped")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::workload::fixtures::cached;

    #[test]
    fn a_revision_round_trips() {
        let template: PodTemplate =
            serde_json::from_str(r#"{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c"}]}}"#)
                .unwrap();
        let new = NewRevision {
            name: revision_name("web", "x"),
            labels: Labels::default(),
            annotations: &Default::default(),
            owner: setpoint::owner::controller_ref(&Kind::of::<Revision>(), &Default::default()),
            template: &template,
            number: 7,
        };
        let body = serde_json::to_value(new.body()).unwrap();
        assert_eq!(body["data"]["spec"]["template"]["$patch"], "replace");
        let read: Cached<Revision> = cached(body);
        assert!(read.number == 7 && read.is_of(&template) && &*read.meta().name == "web-x");
    }

    #[test]
    fn revision_data_is_canonical() {
        let spec =
            r#"{"restartPolicy":"Always","containers":[{"name":"c","args":["a && b < c > d\u2028"]}]}"#;
        let template = r#"{"spec":SPEC,"metadata":{"labels":{"b":"1","a":"2"}}}"#.replace("SPEC", spec);
        let template: PodTemplate = serde_json::from_str(&template).unwrap();
        let saved = Saved { patch: "replace", metadata: &template.metadata, spec: &template.spec };
        let expected = concat!(
            r#"{"spec":{"template":{"$patch":"replace","metadata":{"labels":{"a":"2","b":"1"}},"#,
            r#""spec":{"containers":[{"args":["a \u0026\u0026 b \u003c c \u003e d\u2028"],"name":"c"}],"#,
            r#""restartPolicy":"Always"}}}}"#,
        );
        assert_eq!(canonical(&Data { spec: Spec { template: saved } }).get(), expected);
    }

    #[test]
    fn invalid_data_matches_no_template() {
        let template: PodTemplate = serde_json::from_str("{}").unwrap();
        let other: Cached<Revision> =
            cached(json!({"metadata": {"name": "r"}, "revision": 1, "data": [1, 2]}));
        assert!(!other.is_of(&template));
        assert_eq!(revision_name(&"w".repeat(300), "x").len(), 225);
    }
}
