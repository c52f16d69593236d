//! Admission of Applications: properties are checked against the parameters of their definitions.
//!
//! An admission webhook: in `setpoint up` a function in the same process, otherwise an HTTPS server. It rejects invalid
//! properties and warns about unknown ones. A missing definition is accepted, because it may be created later.
//! Deletions, and Applications that are being deleted, are never rejected.

use serde_json::{Map, Value, json};
use setpoint::client::Subresource;
use setpoint::{Client, ClientError, Context, Informer, Key, Kind};

use crate::application::app::Application;
use crate::application::catalog::Catalog;
use crate::definition::model::Definition;
use crate::model::Component;
use crate::names::FIELD_MANAGER;
use crate::parameters::{self, Findings};
use crate::render::sources::Sources;

/// The host of the webhook inside of `setpoint up`.
pub const HOST: &str = "applications.setpoint.internal";
/// The path of the webhook.
pub const PATH: &str = "/validate-applications";
/// The name of the webhook configuration.
const NAME: &str = "setpoint-applications";

/// The maximum number of checked components and traits. Each takes two evaluations.
const MAX_CHECKED: usize = 200;

/// Responds to admission reviews of Applications. Cheap to clone.
#[derive(Clone)]
pub struct Admission {
    catalog: Catalog,
    sources: Sources,
}

/// The findings in an application.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    errors: Vec<String>,
    warnings: Vec<String>,
    /// The components and traits that were checked.
    checked: usize,
}

impl Admission {
    /// Creates the webhook on the caches of a manager.
    pub fn new(context: &Context) -> Self {
        Self { catalog: Catalog::new(context), sources: Sources::new() }
    }

    /// Returns whether the caches have synced. Until then it cannot respond.
    pub fn is_ready(&self) -> bool {
        self.catalog.informers().iter().all(Informer::has_synced)
    }

    /// Responds to an AdmissionReview. Fails closed: an invalid review is rejected. Evaluates templates, so it can take
    /// seconds: call it on a thread that may block.
    pub fn review(&self, review: &Value) -> Value {
        self.review_while(review, &|| true)
    }

    /// Like the above, but returns early with any response once the result is no longer needed.
    pub fn review_while(&self, review: &Value, is_wanted: &dyn Fn() -> bool) -> Value {
        let request = &review["request"];
        let verdict = match self.is_ready() {
            true => self.judge(request, is_wanted),
            false => Verdict {
                errors: vec!["the definitions are not known yet, try again".into()],
                ..Verdict::default()
            },
        };
        let mut response = Map::new();
        response.insert("uid".into(), request["uid"].clone());
        response.insert("allowed".into(), verdict.errors.is_empty().into());
        if !verdict.warnings.is_empty() {
            response.insert("warnings".into(), json!(verdict.warnings));
        }
        if !verdict.errors.is_empty() {
            let status = json!({"code": 422, "reason": "Invalid", "message": verdict.errors.join("; ")});
            response.insert("status".into(), status);
        }
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
    }

    fn judge(&self, request: &Value, is_wanted: &dyn Fn() -> bool) -> Verdict {
        let object = &request["object"];
        let is_leaving =
            request["operation"] == "DELETE" || !object["metadata"]["deletionTimestamp"].is_null();
        // An update that does not change the spec was accepted before.
        let is_same = !request["oldObject"].is_null() && request["oldObject"]["spec"] == object["spec"];
        if is_leaving || is_same {
            return Verdict::default();
        }
        match serde_json::from_value::<Application>(object.clone()) {
            Ok(app) => self.check(&app, request["namespace"].as_str().unwrap_or_default(), is_wanted),
            Err(error) => Verdict { errors: vec![format!("spec: {error}")], ..Verdict::default() },
        }
    }

    fn check(&self, app: &Application, namespace: &str, is_wanted: &dyn Fn() -> bool) -> Verdict {
        let mut verdict = Verdict::default();
        // An override may supply missing properties of a component.
        let overridden = app.spec.policies.iter().any(|policy| policy.kind == "override");
        for (index, component) in app.spec.components.iter().enumerate() {
            if !is_wanted() {
                verdict.errors.push("the check was given up".into());
                break;
            }
            let at = format!("spec.components[{index}]");
            let completed = overridden || !component.inputs.is_empty();
            self.component(component, &at, namespace, completed, &mut verdict);
        }
        verdict
    }

    fn component(
        &self,
        component: &Component,
        at: &str,
        namespace: &str,
        completed: bool,
        verdict: &mut Verdict,
    ) {
        let mut one = |kind: &str, name: &str, properties: &Value, at: &str| {
            if !verdict.may_check_another() {
                return;
            }
            let Some(found) = self.catalog.definition(kind, namespace, name) else { return };
            match self.findings(&found, properties) {
                Ok(findings) => verdict.add(findings, &format!("{at}.properties"), completed),
                Err(why) => verdict.warnings.push(format!("{at}: {kind} {name}: {why}")),
            }
        };
        one("ComponentDefinition", &component.kind, &component.properties, at);
        for (index, attached) in component.traits.iter().enumerate() {
            one("TraitDefinition", &attached.kind, &attached.properties, &format!("{at}.traits[{index}]"));
        }
    }

    fn findings(&self, definition: &Value, properties: &Value) -> Result<Findings, String> {
        let definition = Definition::of(definition).map_err(|error| error.to_string())?;
        parameters::check(&self.sources, &definition, properties)
    }
}

impl Verdict {
    /// Returns whether another component or trait is checked. Warns once that the rest is not.
    fn may_check_another(&mut self) -> bool {
        self.checked += 1;
        if self.checked == MAX_CHECKED + 1 {
            self.warnings.push(format!("only the first {MAX_CHECKED} components and traits are checked"));
        }
        self.checked <= MAX_CHECKED
    }

    fn add(&mut self, findings: Findings, at: &str, completed: bool) {
        self.errors.extend(findings.wrong.map(|why| format!("{at}.{why}")));
        if !completed {
            self.errors.extend(findings.missing.map(|why| format!("{at}.{why}")));
        }
        self.warnings.extend(findings.unknown.iter().map(|path| format!("unknown property {at}.{path}")));
    }
}

/// Registers the webhook with the API server. `client_config` is its address.
pub async fn register(client: &Client, client_config: &Value) -> Result<(), ClientError> {
    let kind = Kind::new(
        "admissionregistration.k8s.io",
        "v1",
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        false,
    );
    let (key, configuration) = (Key::cluster(NAME), configuration(client_config));
    client.apply(&kind, &key, Subresource::None, FIELD_MANAGER, configuration).await.map(drop)
}

fn configuration(client_config: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME},
        "webhooks": [{
            "name": "applications.core.oam.dev",
            "clientConfig": client_config,
            "rules": [{
                "apiGroups": ["core.oam.dev"], "apiVersions": ["v1beta1"], "resources": ["applications"],
                "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
            }],
            "matchConditions": [{
                "name": "not-deleted", "expression": "!has(object.metadata.deletionTimestamp)",
            }],
            "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 5,
            "admissionReviewVersions": ["v1"],
        }],
    })
}
