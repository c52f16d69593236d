//! ReplicationControllers: the predecessor of ReplicaSets, without selector expressions.

use serde_json::{Value, json};

use super::pod::template;
use super::{CORE, entry, metadata, selector, workload};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope, Subresource};
use crate::strategy::{DefaultPropagation, Deletion, Lifecycle, NameRule, Semantics, Validation};
use crate::table::{Column, or_none};
use crate::validation::{labels, nonnegative_field};

pub fn kind() -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::integer("Desired", DESIRED, |rc, _| rc.at("spec").count("replicas").into()),
        Column::integer("Current", CURRENT, |rc, _| rc.at("status").count("replicas").into()),
        Column::integer("Ready", READY, |rc, _| rc.at("status").count("readyReplicas").into()),
        Column::age(),
    ];
    columns.extend(template::container_columns().map(Column::wide));
    columns.push(
        Column::text("Selector", SELECTOR, |rc, _| {
            or_none(&selector::shown_labels(rc.at("spec").map("selector")))
        })
        .wide(),
    );
    Kind {
        short_names: vec!["rc".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Scale, Subresource::Status],
        columns,
        field_selectors: vec![FieldSelector {
            path: "status.replicas",
            value: |rc| rc.at("status").count("replicas").to_string(),
        }],
        semantics: Semantics {
            deletion: Deletion { propagation: DefaultPropagation::Orphan, ..Deletion::default() },
            ..Semantics::with_status(|| json!({"replicas": 0}))
        },
        ..entry(&CORE, "ReplicationController", "replicationcontrollers", ReplicationController)
    }
}

const DESIRED: &str = "Replicas is the number of desired replicas. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller";
const CURRENT: &str = "Replicas is the most recently observed number of replicas. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicationcontroller#what-is-a-replicationcontroller";
const READY: &str = "The number of ready replicas for this replication controller.";
const SELECTOR: &str = "Selector is a label query over pods that should match the Replicas count. If Selector is empty, it is defaulted to the labels present on the Pod template. Label keys and values that must match in order to be controlled by this replication controller, if empty defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

struct ReplicationController;

impl Lifecycle for ReplicationController {
    fn default(&self, rc: &mut Value) {
        let spec = rc.object_mut("spec");
        spec.or_insert("replicas", 1);
        let Some(template) = spec.at_mut("template") else { return };
        template::default_template(template);
        let template_labels = template.at("metadata").at("labels").clone();
        if template_labels.is_null() {
            return;
        }
        if !labels::is_filled(spec.map("selector")) {
            spec.set("selector", template_labels.clone());
        }
        if !labels::is_filled(rc.at("metadata").map("labels")) {
            rc.object_mut("metadata").set("labels", template_labels);
        }
    }

    fn prepare_for_create(&self, rc: &mut Value) {
        workload::drop_disabled(rc);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        workload::drop_disabled(new);
    }
}

impl Validation for ReplicationController {
    fn validate(&self, rc: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(rc, &mut errors);
        check_spec(rc, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        // Twice, as v1.34 does.
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_spec(new, old, &mut errors);
        metadata::change(new, &mut errors);
        check_spec(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let status = new.at("status");
        workload::check_labelled_replicas(status, &[], &mut errors);
        errors
    }

    /// Returns warnings; as in v1.34, those about an update are based on the old object.
    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template::warnings(old.unwrap_or(new), old, |old| self.changes_generation(new, old))
    }
}

fn check_spec(rc: &Value, old: &Value, errors: &mut Errors) {
    let spec = rc.at("spec");
    let path = Path::root("spec");
    nonnegative_field(spec, "minReadySeconds", &path, errors);
    let is_selecting = labels::is_filled(spec.map("selector"));
    if !is_selecting {
        errors.required(&path.child("selector"), "");
    }
    nonnegative_field(spec, "replicas", &path, errors);
    let path = path.child("template");
    let template = spec.at("template");
    if template.is_null() {
        return errors.required(&path, "");
    }
    if is_selecting {
        template::check_labels(&json!({"matchLabels": spec.at("selector")}), template, &path, errors);
    }
    template::check(template, old.at("spec").at("template"), &path, errors);
    template::check_runs_forever(template, "ReplicationController", &path, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn template() -> Value {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
    }

    #[test]
    fn unset_fields_come_from_the_template() {
        let mut rc = json!({"metadata": {}, "spec": {"template": template()}});
        ReplicationController.default(&mut rc);
        assert_eq!(rc["spec"]["selector"], json!({"a": "b"}));
        assert_eq!(rc["metadata"]["labels"], json!({"a": "b"}));
        assert_eq!(rc["spec"]["replicas"], 1);
    }

    #[test]
    fn a_controller_selects_the_pods_of_its_template() {
        check::create(&ReplicationController, json!({"spec": {"template": template()}}), &[]);
        check::create(
            &ReplicationController,
            json!({"spec": {"replicas": -1, "minReadySeconds": -1, "selector": {"a": "c"}, "template": template()}}),
            &[
                "Invalid spec.minReadySeconds",
                "Invalid spec.replicas",
                "Invalid spec.template.metadata.labels",
            ],
        );
        check::create(
            &ReplicationController,
            json!({"spec": {}}),
            &["Required spec.selector", "Required spec.template"],
        );
    }
}
