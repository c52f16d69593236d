//! The framework's webhooks, called by the API server in process: defaults, validation, and conversion between versions.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use setpoint::webhook::{
    AdmissionRequest, Allowed, Denied, Endpoint, Operation, Validator, Versions, Webhooks,
};
use setpoint::{Api, Key};
use setpoint_sim::{Callee, Fault, OnReply, Running, TestCluster};

#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(group = "example.com", version = "v1", kind = "Widget", namespaced)]
struct WidgetSpec {
    size: u32,
}

mod v2 {
    use super::*;

    #[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
    #[kube(group = "example.com", version = "v2", kind = "Widget", namespaced)]
    pub(super) struct WidgetSpec {
        pub(super) replicas: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub(super) colour: Option<String>,
    }
}

/// Widgets of version 1 have no colour. It is kept in an annotation.
const COLOUR: &str = "example.com/colour";

fn to_v2(Widget { mut metadata, spec }: Widget) -> Result<v2::Widget, String> {
    let colour = metadata.annotations.get_or_insert_default().remove(COLOUR);
    Ok(v2::Widget { metadata, spec: v2::WidgetSpec { replicas: spec.size, colour } })
}

fn to_v1(v2::Widget { mut metadata, spec }: v2::Widget) -> Result<Widget, String> {
    let annotations: &mut BTreeMap<_, _> = metadata.annotations.get_or_insert_default();
    annotations.extend(spec.colour.map(|colour| (COLOUR.to_owned(), colour)));
    Ok(Widget { metadata, spec: WidgetSpec { size: spec.replicas } })
}

fn versions() -> Versions<v2::Widget> {
    Versions::stored::<v2::Widget>().served(to_v2, to_v1).deprecated("v1", "use v2")
}

/// Widgets do not shrink, and are not deleted while they are large.
struct NeverSmaller;

impl Validator<v2::Widget> for NeverSmaller {
    const OPERATIONS: &'static [Operation] = &[Operation::Update, Operation::Delete];

    async fn validate(
        &self,
        new: Option<&v2::Widget>,
        old: Option<&v2::Widget>,
        request: &AdmissionRequest,
    ) -> Result<Allowed, Denied> {
        let replicas = |widget: Option<&v2::Widget>| widget.map_or(0, |widget| widget.spec.replicas);
        match (replicas(new), replicas(old)) {
            (new, old) if request.operation == Operation::Update && new < old => {
                Err(Denied::invalid("spec.replicas", format!("expected at least {old}, not {new}")))
            }
            (_, old) if request.operation == Operation::Delete && old > 9 => {
                Err(Denied::from(format!("{} is too large to be deleted", request.key)))
            }
            _ => Ok(Allowed::default()),
        }
    }
}

fn webhooks() -> Webhooks {
    Webhooks::new("widgets")
        .default(|widget: &mut v2::Widget| {
            widget.spec.colour.get_or_insert("red".into());
        })
        .validate::<v2::Widget, _>(NeverSmaller)
        .convert::<v2::Widget>(versions())
}

fn endpoint() -> Endpoint {
    Endpoint::service("default", "widgets")
}

fn cluster() -> TestCluster {
    TestCluster::new().webhooks(&endpoint(), &webhooks())
}

async fn begin(cluster: &Running) -> Api {
    let definition = versions().definition().expect("the versions belong together");
    cluster.install(&webhooks().converting(definition, &endpoint(), None)).await;
    Api::new(cluster.client().clone(), "test")
}

fn key() -> Key {
    Key::namespaced("default", "big")
}

fn widget(replicas: u32) -> v2::Widget {
    v2::Widget { metadata: key().metadata(), spec: v2::WidgetSpec { replicas, colour: None } }
}

#[test]
fn defaults_are_set_and_changes_are_validated() {
    cluster().run(async |cluster| {
        let api = begin(cluster).await;
        let mut created = api.create(&widget(10)).await.expect("it is valid");
        assert_eq!(created.spec.colour.as_deref(), Some("red"));
        created.spec.replicas = 3;
        let error = api.update(&created).await.expect_err("it shrinks");
        assert!(error.is_invalid(), "{error}");
        assert!(error.to_string().ends_with("spec.replicas: expected at least 10, not 3"), "{error}");
        let error = api.delete(&created).await.expect_err("it is large");
        assert!(error.is_forbidden() && error.to_string().contains("default/big is too large"), "{error}");
        let map = ConfigMap { metadata: key().metadata(), ..ConfigMap::default() };
        api.create(&map).await.expect("other kinds are not reviewed");
    });
}

#[test]
fn a_widget_is_read_and_written_in_both_versions_without_loss() {
    cluster().run(async |cluster| {
        let api = begin(cluster).await;
        api.create(&widget(3)).await.expect("it is valid");
        let mut old: Widget = api.get(&key()).await.expect("it is converted");
        assert_eq!(
            (old.spec.size, &old.metadata.annotations.as_ref().expect("kept")[COLOUR]),
            (3, &"red".into())
        );
        old.spec.size = 4;
        api.update(&old).await.expect("it is converted");
        let new: v2::Widget = api.get(&key()).await.expect("it is there");
        assert_eq!((new.spec.replicas, new.spec.colour.as_deref()), (4, Some("red")));
    });
}

#[test]
fn a_webhook_that_does_not_answer_fails_the_request() {
    let lost = Fault::Reply { of: Callee::Webhook, nth: 0, what: OnReply::Drop };
    cluster().faults([lost]).run(async |cluster| {
        let api = begin(cluster).await;
        let error = api.create(&widget(1)).await.expect_err("the webhook does not answer");
        assert_eq!(error.code(), Some(500), "{error}");
        api.create(&widget(1)).await.expect("it answers again");
    });
}
