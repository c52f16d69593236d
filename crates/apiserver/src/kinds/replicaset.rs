//! ReplicaSets.

use serde_json::{Value, json};

use super::pod::template;
use super::{APPS, entry, metadata, workload};
use crate::features::Features;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, Semantics, Validation};
use crate::table::Column;
use crate::validation::nonnegative_field;

pub fn kind(features: &Features) -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::integer("Desired", DESIRED, |set, _| set.at("spec").count("replicas").into()),
        Column::integer("Current", CURRENT, |set, _| set.at("status").count("replicas").into()),
        Column::integer("Ready", READY, |set, _| set.at("status").count("readyReplicas").into()),
        Column::age(),
    ];
    columns.extend(template::columns(SELECTOR));
    Kind {
        short_names: vec!["rs".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Scale, Subresource::Status],
        columns,
        semantics: Semantics::with_status(|| json!({"replicas": 0})),
        ..entry(
            &APPS,
            "ReplicaSet",
            "replicasets",
            ReplicaSet { counts_terminating: features.has("DeploymentReplicaSetTerminatingReplicas") },
        )
    }
}

const DESIRED: &str = "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
const CURRENT: &str = "Replicas is the most recently observed number of non-terminating pods. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
const READY: &str = "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.";
const SELECTOR: &str = "Selector is a label query over pods that should match the replica count. If the selector is empty, it is defaulted to the labels present on the pod template. Label keys and values that must match in order to be controlled by this replica set. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

struct ReplicaSet {
    /// Whether its status counts terminating pods.
    counts_terminating: bool,
}

#[cfg(test)]
impl ReplicaSet {
    const DEFAULT: Self = Self { counts_terminating: false };
}

impl Lifecycle for ReplicaSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_mut("spec");
        spec.or_insert("replicas", 1);
        template::default(spec);
    }

    fn prepare_for_create(&self, set: &mut Value) {
        workload::drop_disabled(set);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        workload::drop_disabled(new);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        if !self.counts_terminating {
            workload::drop_terminating_replicas(new, old);
        }
    }
}

impl Validation for ReplicaSet {
    fn validate(&self, set: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(set, &mut errors);
        check_spec(set, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_spec(new, old, &mut errors);
        workload::keep_selector(new, old, &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template::warnings(new, old, |old| self.changes_generation(new, old))
    }

    fn validate_status_update(&self, new: &Value, _: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        workload::check_labelled_replicas(new.at("status"), &["terminatingReplicas"], &mut errors);
        errors
    }
}

fn check_spec(set: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    nonnegative_field(set.at("spec"), "replicas", &path, errors);
    nonnegative_field(set.at("spec"), "minReadySeconds", &path, errors);
    template::check_selected(set.at("spec"), old.at("spec"), &path, errors);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn a_set_selects_the_pods_of_its_template() {
        let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        check::create(
            &ReplicaSet::DEFAULT,
            json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}}),
            &[],
        );
        check::create(
            &ReplicaSet::DEFAULT,
            json!({"spec": {"replicas": -1, "selector": {"matchLabels": {"a": "c"}}, "template": template}}),
            &["Invalid spec.replicas", "Invalid spec.template.metadata.labels"],
        );
    }

    #[test]
    fn counts_are_consistent() {
        let errors = ReplicaSet::DEFAULT.validate_status_update(
            &json!({"status": {"replicas": 1, "fullyLabeledReplicas": 2, "readyReplicas": -1}}),
            &json!({}),
        );
        let expected = [
            "Invalid status.readyReplicas",
            "Invalid status.fullyLabeledReplicas",
            "Invalid status.availableReplicas",
        ];
        assert_eq!(check::shown(&errors), expected);
    }
}
