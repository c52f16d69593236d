//! Namespaces.

use serde_json::{Value, json};

use super::{CORE, entry, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource, Verb};
use crate::strategy::{Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{finalizer_name, qualified_name};

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
        semantics: Semantics {
            counts_generations: false,
            names: NameRule::Label,
            deletion: Deletion { returns_object: true, pins_uid: true, ..Deletion::default() },
            ..Semantics::with_status(|| json!({"phase": "Active"}))
        },
        ..entry(&CORE, "Namespace", "namespaces", Namespace)
    }
}

/// The label with a namespace's own name, for selectors.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";
/// The finalizer that the namespace controller removes when the namespace is empty.
const KUBERNETES: &str = "kubernetes";

fn phase(namespace: &Value) -> &str {
    namespace.at("status").text("phase")
}

struct Namespace;

impl Lifecycle for Namespace {
    fn terminate(&self, namespace: &mut Value) -> bool {
        namespace.object_mut("status").set("phase", "Terminating");
        true
    }

    fn holds_deletion(&self, namespace: &Value) -> bool {
        !namespace.at("spec").list("finalizers").is_empty()
    }

    fn default(&self, namespace: &mut Value) {
        label_with_name(namespace);
        namespace.object_mut("status").or_text("phase", "Active");
    }

    fn prepare_for_create(&self, namespace: &mut Value) {
        let spec = namespace.object_mut("spec");
        match spec.at_mut("finalizers") {
            Some(Value::Array(finalizers)) if finalizers.iter().any(|name| name == KUBERNETES) => {}
            Some(Value::Array(finalizers)) => finalizers.push(KUBERNETES.into()),
            _ => spec.set("finalizers", json!([KUBERNETES])),
        }
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.object_mut("spec").restore("finalizers", old.at("spec"));
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
}

impl Validation for Namespace {
    fn validate(&self, namespace: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(namespace, &mut errors);
        check_finalizers(namespace, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::whole(new, Scope::Cluster, NameRule::Label, &mut errors);
        check_finalizers(new, &mut errors);
        metadata::change(new, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_phase(new, &mut errors);
        errors
    }

    fn validate_subresource_update(&self, subresource: Subresource, new: &Value, old: &Value) -> Errors {
        match subresource {
            Subresource::Finalize => validate_finalize(new),
            Subresource::Status => self.validate_status_update(new, old),
            _ => self.validate_update(new, old),
        }
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

fn finalizers(namespace: &Value) -> impl Iterator<Item = &str> {
    namespace.at("spec").list("finalizers").iter().map(|name| name.as_str().unwrap_or_default())
}

fn check_finalizers(namespace: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let path = path.child("finalizers");
    for name in finalizers(namespace) {
        qualified_name(name, &path, errors);
        finalizer_name(name, &path, errors);
    }
}

fn validate_finalize(new: &Value) -> Errors {
    let mut errors = Errors::default();
    metadata::change(new, &mut errors);
    let path = Path::root("spec");
    let path = path.child("finalizers");
    for (index, name) in finalizers(new).enumerate() {
        qualified_name(name, &path.index(index), &mut errors);
        finalizer_name(name, &path.index(index), &mut errors);
    }
    errors
}

/// Checks that a namespace is terminating exactly while it is being deleted.
fn check_phase(namespace: &Value, errors: &mut Errors) {
    let (expected, detail) = match namespace.at("metadata").has("deletionTimestamp") {
        false => ("Active", "may only be 'Active' if `deletionTimestamp` is empty"),
        true => ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty"),
    };
    if phase(namespace) != expected {
        errors.invalid(&Path::root("status").child("Phase"), phase(namespace), detail);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn a_namespace_is_labelled_with_its_name_and_held_by_kubernetes() {
        let mut namespace = json!({"metadata": {"name": "a"}, "spec": {"finalizers": ["x.io/y"]}});
        Namespace.default(&mut namespace);
        kind().semantics.prepare_for_create(&mut namespace);
        Namespace.prepare_for_create(&mut namespace);
        assert_eq!(
            namespace,
            json!({"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}},
                "spec": {"finalizers": ["x.io/y", "kubernetes"]}, "status": {"phase": "Active"}})
        );
    }

    #[test]
    fn finalizers_are_qualified() {
        check::create(&Namespace, json!({"spec": {"finalizers": ["kubernetes", "x.io/y"]}}), &[]);
        check::create(&Namespace, json!({"spec": {"finalizers": ["x"]}}), &["Invalid spec.finalizers"]);
        let errors = Namespace.validate_subresource_update(
            Subresource::Finalize,
            &json!({"spec": {"finalizers": ["x"]}}),
            &json!({}),
        );
        assert_eq!(check::shown(&errors), ["Invalid spec.finalizers[0]"]);
    }

    #[test]
    fn the_phase_follows_deletion() {
        let old = json!({});
        let errors = Namespace.validate_status_update(&json!({"status": {"phase": "Terminating"}}), &old);
        assert_eq!(check::shown(&errors), ["Invalid status.Phase"]);
        let deleted = json!({"metadata": {"deletionTimestamp": "x"}, "status": {"phase": "Terminating"}});
        assert!(Namespace.validate_status_update(&deleted, &old).is_empty());
    }
}
