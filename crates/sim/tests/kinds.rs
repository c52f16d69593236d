//! Controllers built in a sentence, for kinds of every origin: derived, hand-written, and known only at run time.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::core::DynamicObject;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use setpoint::prelude::*;
use setpoint_sim::{Fault, OnCall, Running, TestCluster};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Note", namespaced, status = "NoteStatus")]
struct NoteSpec {
    text: String,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
struct NoteStatus {
    words: Option<usize>,
}

/// A hand-written view: the fields of a Note that a controller needs, and nothing else.
#[derive(Deserialize)]
struct Text {
    spec: NoteSpec,
}

impl View for Text {
    fn kind() -> Kind {
        notes()
    }
}

fn notes() -> Kind {
    Kind::new("example.com", "v1", "Note", "notes", true)
}

fn copy_of(text: &str, metadata: k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> ConfigMap {
    ConfigMap { metadata, data: Some([("text".to_owned(), text.to_owned())].into()), ..ConfigMap::default() }
}

fn derived(context: &Context) -> Controller {
    async fn copy(note: Cached<Note>, context: Context) -> Result<(), ReconcileError> {
        context.ensure(&copy_of(&note.spec.text, note.owned(note.name()))).await?;
        let status = NoteStatus { words: Some(note.spec.text.split(' ').count()) };
        context.api.patch_status(&note, &status).await?;
        Ok(())
    }
    Controller::for_::<Note>(context, "derived").owns::<ConfigMap>().run(copy)
}

fn hand_written(context: &Context) -> Controller {
    async fn copy(note: Cached<Text>, context: Context) -> Result<Outcome, ReconcileError> {
        context.ensure(&copy_of(&note.spec.text, note.owned(note.name()))).await?;
        context.api.patch_status(&note, &json!({"words": note.spec.text.split(' ').count()})).await?;
        Ok(Outcome::Settled)
    }
    Controller::for_::<Text>(context, "hand-written").owns::<ConfigMap>().run(copy)
}

fn known_at_run_time(context: &Context) -> Controller {
    async fn copy(object: Object, context: Context) -> Result<(), ReconcileError> {
        let note: DynamicObject = object.decode()?;
        let text = note.data["spec"]["text"].as_str().unwrap_or_default();
        let notes = notes();
        let copy = copy_of(text, object.of_kind(&notes).owned(object.key().name()));
        context.ensure_kind(&Kind::of::<ConfigMap>(), &copy).await?;
        let status = json!({"words": text.split(' ').count()});
        context.api.of_kind(&notes).patch_status(&object, &status).await?;
        Ok(())
    }
    Controller::for_kind(context, "run-time", &notes()).owns_kind(&Kind::of::<ConfigMap>()).run(copy)
}

fn key() -> Key {
    Key::namespaced("default", "note")
}

fn has(text: &str) -> impl Fn(&ConfigMap) -> bool {
    move |map| map.data.as_ref().is_some_and(|data| data["text"] == text)
}

async fn follow(cluster: &Running) {
    cluster.install(&Note::crd()).await;
    let api = Api::new(cluster.client().clone(), "user");
    let note = Note { metadata: key().metadata(), spec: NoteSpec { text: "hello".into() }, status: None };
    let created = api.create(&note).await.expect("it is valid");
    let map = cluster.until(&key(), has("hello")).await;
    assert_eq!(map.metadata.owner_references.expect("owned")[0].uid, created.metadata.uid.expect("stored"));
    api.delete(&cluster.find::<ConfigMap>(&key()).await.expect("it is there")).await.expect("a user may");
    cluster.until(&key(), has("hello")).await;
    let mut note: Note = api.get(&key()).await.expect("it is there");
    note.spec.text = "good morning".into();
    api.update(&note).await.expect("it has not changed");
    cluster.until(&key(), has("good morning")).await;
    let counted = |note: &Note| note.status.as_ref().is_some_and(|status| status.words == Some(2));
    let settled = cluster.until(&key(), counted).await;
    cluster.pass(Duration::from_secs(600)).await;
    let later = cluster.find::<Note>(&key()).await.expect("it is there");
    assert_eq!(later.metadata.resource_version, settled.metadata.resource_version);
}

fn check(controller: fn(&Context) -> Controller) {
    TestCluster::new().with(controller).run(follow);
    for nth in 0..3 {
        for what in [OnCall::CrashBefore, OnCall::CrashAfter, OnCall::DropAfter, OnCall::Fail(500)] {
            TestCluster::new().with(controller).faults([Fault::Call { nth, what }]).run(follow);
        }
    }
}

#[test]
fn a_derived_kind_is_reconciled_despite_faults() {
    check(derived);
}

#[test]
fn a_hand_written_view_is_reconciled_despite_faults() {
    check(hand_written);
}

#[test]
fn a_kind_known_at_run_time_is_reconciled_despite_faults() {
    check(known_at_run_time);
}

#[test]
fn the_kind_of_a_definition_is_enough_for_typed_reads() {
    TestCluster::new().run(async |cluster| {
        cluster.install(&Note::crd()).await;
        let api = Api::new(cluster.client().clone(), "user");
        let definition: CustomResourceDefinition =
            api.get(&Key::cluster("notes.example.com")).await.expect("it is installed");
        assert_eq!(definition.spec.names.kind, "Note");
        assert!(api.get_opt::<Note>(&key()).await.expect("it is served").is_none());
        assert!(api.list::<Note>(Some("default")).await.expect("it is served").is_empty());
    });
}

/// Copies the first word, and a second one if there is one.
fn with_two_words(context: &Context) -> Controller {
    async fn copy(note: Cached<Note>, context: Context) -> Result<(), ReconcileError> {
        let mut words = note.spec.text.split(' ');
        let mut copy = copy_of(words.next().unwrap_or_default(), note.owned(note.name()));
        let second = words.next().map(|second| ("second".to_owned(), second.to_owned()));
        copy.data.get_or_insert_default().extend(second);
        context.ensure(&copy).await?;
        Ok(())
    }
    Controller::for_::<Note>(context, "with-two-words").owns::<ConfigMap>().run(copy)
}

#[test]
fn a_field_that_is_no_longer_ensured_is_removed() {
    TestCluster::new().with(with_two_words).run(async |cluster| {
        cluster.install(&Note::crd()).await;
        let api = Api::new(cluster.client().clone(), "user");
        let note =
            Note { metadata: key().metadata(), spec: NoteSpec { text: "one two".into() }, status: None };
        api.create(&note).await.expect("it is valid");
        let second = |map: &ConfigMap| map.data.as_ref().and_then(|data| data.get("second").cloned());
        cluster.until(&key(), |map: &ConfigMap| second(map).as_deref() == Some("two")).await;
        let mut note: Note = api.get(&key()).await.expect("it is there");
        note.spec.text = "one".into();
        api.update(&note).await.expect("it has not changed");
        cluster.until(&key(), |map: &ConfigMap| second(map).is_none()).await;
    });
}
