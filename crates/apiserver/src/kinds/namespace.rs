//! Namespaces.

use serde_json::{Value, json};

use super::{CORE, entry};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource, Verb};
use crate::strategy::{NameRule, Strategy};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        short_names: vec!["ns".into()],
        verbs: Verb::ALL.into_iter().filter(|verb| *verb != Verb::DeleteCollection).collect(),
        subresources: vec![Subresource::Finalize, Subresource::Status],
        columns: vec![
            Column::name(),
            Column::text("Status", "The status of the namespace", |object, _| phase(object).into()),
            Column::age(),
        ],
        field_selectors: vec![FieldSelector {
            path: "status.phase",
            value: |object| phase(object).to_owned(),
        }],
        ..entry(&CORE, "Namespace", "namespaces", Namespace)
    }
}

/// The label that carries a namespace's own name, so that selectors can pick it.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that the namespace controller removes when nothing is left in the namespace.
const KUBERNETES: &str = "kubernetes";

fn phase(namespace: &Value) -> &str {
    namespace.at("status").text("phase")
}

struct Namespace;

impl Strategy for Namespace {
    fn terminate(&self, namespace: &mut Value) -> bool {
        namespace.object_mut("status").set("phase", "Terminating");
        true
    }

    fn holds_deletion(&self, namespace: &Value) -> bool {
        !namespace.at("spec").list("finalizers").is_empty()
    }

    fn returns_deleted(&self) -> bool {
        true
    }

    fn default(&self, namespace: &mut Value) {
        label_with_name(namespace);
        namespace.object_mut("status").or_text("phase", "Active");
    }

    fn prepare_for_create(&self, namespace: &mut Value) {
        namespace.set("status", json!({"phase": "Active"}));
        let spec = namespace.object_mut("spec");
        match spec.at_mut("finalizers") {
            Some(Value::Array(finalizers)) if finalizers.iter().any(|name| name == KUBERNETES) => {}
            Some(Value::Array(finalizers)) => finalizers.push(KUBERNETES.into()),
            _ => spec.set("finalizers", json!([KUBERNETES])),
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.object_mut("spec").restore("finalizers", old.at("spec"));
        new.restore("status", old);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
    }

    fn prepare_for_subresource_update(&self, subresource: Subresource, new: &mut Value, old: &Value) {
        match subresource {
            Subresource::Finalize => new.restore("status", old),
            Subresource::Status => self.prepare_for_status_update(new, old),
            _ => self.prepare_for_update(new, old),
        }
    }

    fn canonicalize(&self, namespace: &mut Value) {
        label_with_name(namespace);
    }

    fn counts_generations(&self) -> bool {
        false
    }

    fn names(&self) -> NameRule {
        NameRule::Label
    }
}

fn label_with_name(namespace: &mut Value) {
    let metadata = namespace.object_mut("metadata");
    let name = metadata.text("name");
    if !name.is_empty() && metadata.at("labels").text(NAME_LABEL) != name {
        let name = name.to_owned();
        metadata.object_mut("labels").set(NAME_LABEL, name);
    }
}
