//! Installs the prerequisites of applications in a cluster: CRDs, a namespace, the built-in definitions, and a policy
//! for names.

use serde_json::{Value, json};
use setpoint::client::{Optional, Subresource};
use setpoint::{Client, ClientError, Clock, Key, Kind, install_kinds};

use crate::crds;
use crate::definition::builtin;
use crate::definition::file::BadDefinition;
use crate::graph;
use crate::names::{FIELD_MANAGER, SYSTEM_NAMESPACE};

/// Why the installation failed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// A kind could not be installed.
    #[error(transparent)]
    Kinds(#[from] setpoint::InstallError),
    /// The API server rejected a request.
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
}

/// Installs or updates everything. Changes nothing if it is up to date.
pub async fn install(client: &Client, clock: &Clock) -> Result<(), InstallError> {
    let definitions = crds::ALL.iter().map(|crd| crd.object());
    let definitions = definitions.chain([graph::definition_crd(), graph::revision_crd()]);
    let kinds = crds::ALL.iter().map(|crd| crd.kind());
    let kinds: Vec<Kind> = kinds.chain([graph::graph_kind(), graph::revision_kind()]).collect();
    install_kinds(client, clock, FIELD_MANAGER, definitions, &kinds).await?;
    let namespaces = Kind::new("", "v1", "Namespace", "namespaces", false);
    apply(client, &namespaces, &Key::cluster(SYSTEM_NAMESPACE), json!({})).await?;
    for object in builtin::objects()? {
        let crd = crds::ALL.iter().find(|crd| object["kind"] == crd.kind);
        let (Some(crd), Some(name)) = (crd, object["metadata"]["name"].as_str()) else { continue };
        let (kind, key) = (crd.kind(), Key::namespaced(SYSTEM_NAMESPACE, name));
        let live = client.get(&kind, &key).await.optional();
        let live =
            live.map_err(|source| InstallError::Client { what: format!("{} {key}", kind.kind()), source })?;
        // A definition that cannot be decoded is not replaced.
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
    // The list may be missing or null.
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
