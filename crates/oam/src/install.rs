//! Installs what applications need in a cluster: kinds, a namespace, the built-in definitions, and a rule about names.

use std::time::Duration;

use serde_json::{Value, json};
use setpoint::client::{Optional, Subresource};
use setpoint::{Client, ClientError, Clock, Key, Kind};

use crate::crds;
use crate::definition::builtin;
use crate::definition::file::BadDefinition;
use crate::graph;
use crate::names::{FIELD_MANAGER, SYSTEM_NAMESPACE};

/// How long a new kind may take until it is served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const CHECK_EVERY: Duration = Duration::from_millis(50);

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The API server refused something.
    #[error("cannot install {what}")]
    Client {
        /// What was being installed.
        what: String,
        /// Why it failed.
        source: ClientError,
    },
    /// A built-in definition is broken.
    #[error(transparent)]
    Definition(#[from] BadDefinition),
    /// A kind was accepted but is not served.
    #[error("{0} is not served although its definition was accepted")]
    NotServed(String),
}

/// Installs everything, or brings it up to date. Changes nothing if it is.
pub async fn install(client: &Client, clock: &Clock) -> Result<(), InstallError> {
    for crd in crds::ALL {
        apply(client, &definition_kind(), &Key::cluster(crd.name()), crd.object()).await?;
    }
    for crd in crds::ALL {
        served(client, clock, &crd.kind()).await?;
    }
    for crd in [graph::definition_crd(), graph::revision_crd()] {
        let name = Key::cluster(crd["metadata"]["name"].as_str().unwrap_or_default());
        apply(client, &definition_kind(), &name, crd).await?;
    }
    for kind in [graph::graph_kind(), graph::revision_kind()] {
        served(client, clock, &kind).await?;
    }
    let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
    apply(client, &namespaces, &Key::cluster(SYSTEM_NAMESPACE), json!({})).await?;
    for object in builtin::objects()? {
        let crd = crds::ALL.iter().find(|crd| object["kind"] == crd.kind);
        let (Some(crd), Some(name)) = (crd, object["metadata"]["name"].as_str()) else { continue };
        let (kind, key) = (crd.kind(), Key::namespaced(SYSTEM_NAMESPACE, name));
        let live = client.get(&kind, &key).await.optional();
        let live =
            live.map_err(|source| InstallError::Client { what: format!("{} {key}", kind.kind()), source })?;
        // One that cannot be decoded is not ours to replace.
        let live = live.map(|live| live.decode::<Value>().unwrap_or_default());
        if let Some(update) = builtin::update(object.clone(), live.as_ref()) {
            apply(client, &kind, &key, update).await?;
        }
    }
    let policies = admission_kind("ValidatingAdmissionPolicy", "validatingadmissionpolicies");
    let bindings = admission_kind("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings");
    apply(client, &policies, &Key::cluster(UNIQUE_NAMES), unique_names()).await?;
    apply(client, &bindings, &Key::cluster(UNIQUE_NAMES), unique_names_binding()).await
}

async fn apply(client: &Client, kind: &Kind, key: &Key, object: Value) -> Result<(), InstallError> {
    let applied = client.apply(kind, key, Subresource::None, FIELD_MANAGER, object).await;
    let what = || format!("{} {key}", kind.kind());
    applied.map(drop).map_err(|source| InstallError::Client { what: what(), source })
}

/// Waits until the server answers for a kind.
async fn served(client: &Client, clock: &Clock, kind: &Kind) -> Result<(), InstallError> {
    let give_up = clock.instant() + SERVED_WITHIN;
    loop {
        let selection = setpoint::source::Selection::default();
        match client.list(kind, &selection).await {
            Ok(_) => return Ok(()),
            Err(error) if error.code() == Some(404) && clock.instant() < give_up => {
                clock.sleep(CHECK_EVERY).await
            }
            Err(error) if error.code() == Some(404) => return Err(InstallError::NotServed(kind.to_string())),
            Err(source) => return Err(InstallError::Client { what: kind.to_string(), source }),
        }
    }
}

fn definition_kind() -> Kind {
    Kind::new("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false)
}

fn admission_kind(kind: &str, plural: &str) -> Kind {
    Kind::new("admissionregistration.k8s.io", "v1", kind, plural, false)
}

const UNIQUE_NAMES: &str = "applications.core.oam.dev";

/// Names of components, policies and steps are unique in an application.
fn unique_names() -> Value {
    let unique = |list: &str, what: &str| {
        json!({
            "expression": format!("{list}.all(one, {list}.filter(other, other.name == one.name).size() == 1)"),
            "message": format!("spec: names of {what} must be unique"),
        })
    };
    // The list may be left out, or have no value.
    let listed = |list: &str| {
        let path = format!("object.spec.{list}");
        format!("has(object.spec) && has({path}) && dyn({path}) != null ? {path} : []")
    };
    json!({"spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["core.oam.dev"], "apiVersions": ["v1beta1"], "resources": ["applications"],
            "operations": ["CREATE", "UPDATE"],
        }]},
        "variables": [
            {"name": "components", "expression": listed("components")},
            {"name": "policies", "expression": format!("({}).filter(p, has(p.name))", listed("policies"))},
        ],
        "matchConditions": [{"name": "not-deleted", "expression": "!has(object.metadata.deletionTimestamp)"}],
        "validations": [unique("variables.components", "components"), unique("variables.policies", "policies")],
    }})
}

fn unique_names_binding() -> Value {
    json!({"spec": {"policyName": UNIQUE_NAMES, "validationActions": ["Deny"]}})
}
