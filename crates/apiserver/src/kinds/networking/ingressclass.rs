//! IngressClasses: the controller of an ingress.

use serde_json::Value;

use super::{NETWORKING, check_object_reference};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Lifecycle, NameRule, Validation};
use crate::table::Column;
use crate::validation::{dns_label, domain_prefixed_path, immutable, too_long};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            Column::text("Controller", CONTROLLER, |class, _| class.at("spec").text("controller").into()),
            Column::text("Parameters", PARAMETERS, |class, _| {
                shown(class.at("spec").at("parameters")).into()
            }),
            Column::age(),
        ],
        ..entry(&NETWORKING, "IngressClass", "ingressclasses", IngressClass)
    }
}

const CONTROLLER: &str = "Controller that is responsible for handling this class";
const PARAMETERS: &str = "A reference to a resource with additional parameters";
const CONTROLLER_BYTES: usize = 250;

fn shown(parameters: &Value) -> String {
    if parameters.is_null() {
        return "<none>".into();
    }
    let (kind, name) = (parameters.text("kind"), parameters.text("name"));
    match parameters.at("apiGroup").as_str() {
        Some(group) => format!("{kind}.{group}/{name}"),
        None => format!("{kind}/{name}"),
    }
}

struct IngressClass;

impl Lifecycle for IngressClass {
    fn default(&self, class: &mut Value) {
        if let Some(parameters) = class.at_mut("spec").and_then(|spec| spec.at_mut("parameters")) {
            parameters.or_insert("scope", "Cluster");
        }
    }
}

impl Validation for IngressClass {
    fn validate(&self, class: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(class, &mut errors);
        check_spec(class.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let path = Path::root("spec");
        let controller = |class: &Value| Value::from(class.at("spec").text("controller"));
        immutable(&controller(new), &controller(old), &path.child("controller"), &mut errors);
        metadata::whole(new, Scope::Cluster, NameRule::Subdomain, &mut errors);
        check_spec(new.at("spec"), &mut errors);
        errors
    }
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let controller = spec.text("controller");
    if controller.len() > CONTROLLER_BYTES {
        too_long(CONTROLLER_BYTES, &path.child("controller"), errors);
    }
    domain_prefixed_path(controller, &path.child("controller"), errors);
    if spec.has("parameters") {
        check_parameters(spec.at("parameters"), &path.child("parameters"), errors);
    }
}

fn check_parameters(parameters: &Value, path: &Path<'_>, errors: &mut Errors) {
    check_object_reference(parameters, path, errors);
    let namespace = parameters.at("namespace").as_str();
    let namespace_path = path.child("namespace");
    match (parameters.at("scope").as_str(), namespace) {
        (None, _) => errors.required(&path.child("scope"), ""),
        (Some("Namespace"), None) => {
            errors.required(&namespace_path, "`parameters.scope` is set to 'Namespace'");
        }
        (Some("Namespace"), Some(namespace)) => dns_label(namespace, &namespace_path, errors),
        (Some("Cluster"), Some(_)) => {
            errors.forbidden(&namespace_path, "`parameters.scope` is set to 'Cluster'");
        }
        (Some("Cluster"), None) => {}
        (Some(scope), _) => errors.not_supported(&path.child("scope"), scope, &["Cluster", "Namespace"]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn a_controller_is_a_path_under_a_domain_and_stays() {
        let class = |controller: &str| json!({"spec": {"controller": controller}});
        check::create(&IngressClass, class("a.io/b"), &[]);
        check::create(&IngressClass, class(""), &["Required spec.controller"]);
        check::create(&IngressClass, class("a"), &["Invalid spec.controller"]);
        check::update(&IngressClass, class("a.io/c"), &class("a.io/b"), &["Invalid spec.controller"]);
    }

    #[test]
    fn parameters_have_a_namespace_only_in_namespace_scope() {
        let create = |parameters: Value, expected: &[&str]| {
            let class = json!({"spec": {"controller": "a.io/b", "parameters": parameters}});
            check::create(&IngressClass, class, expected);
        };
        create(json!({"kind": "X", "name": "x"}), &[]);
        create(json!({"name": "x"}), &["Required spec.parameters.kind"]);
        create(
            json!({"kind": "X", "name": "x", "scope": "Namespace"}),
            &["Required spec.parameters.namespace"],
        );
        create(json!({"kind": "X", "name": "x", "namespace": "n"}), &["Forbidden spec.parameters.namespace"]);
        create(json!({"kind": "X", "name": "x", "scope": "Y"}), &["NotSupported spec.parameters.scope"]);
    }
}
