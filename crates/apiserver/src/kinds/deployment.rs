//! Deployments.

use serde_json::{Value, json};

use super::pod::template;
use super::{APPS, entry, metadata, workload};
use crate::declared;
use crate::features::Features;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, Presentation, Semantics, Validation};
use crate::table::Column;
use crate::validation::{nonnegative, nonnegative_field};

pub fn kind(features: &Features) -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::text("Ready", "Number of the pod with ready state", |deployment, _| {
            workload::ready(deployment)
        }),
        Column::text("Up-to-date", UP_TO_DATE, |deployment, _| {
            deployment.at("status").count("updatedReplicas").into()
        }),
        Column::text("Available", AVAILABLE, |deployment, _| {
            deployment.at("status").count("availableReplicas").into()
        }),
        Column::age(),
    ];
    columns.extend(template::columns(SELECTOR));
    Kind {
        short_names: vec!["deploy".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Scale, Subresource::Status],
        columns,
        presentation: Presentation { field_annotations: &[ROLLBACK_TO], ..Presentation::default() },
        semantics: Semantics::with_status(|| json!({})),
        ..entry(
            &APPS,
            "Deployment",
            "deployments",
            Deployment { counts_terminating: features.has("DeploymentReplicaSetTerminatingReplicas") },
        )
    }
}

const UP_TO_DATE: &str =
    "Total number of non-terminating pods targeted by this deployment that have the desired template spec.";
const AVAILABLE: &str = "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.";
const SELECTOR: &str = "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment.";

/// The revision to roll back to, which has no field in this version.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

struct Deployment {
    /// Whether its status counts terminating pods.
    counts_terminating: bool,
}

#[cfg(test)]
impl Deployment {
    const DEFAULT: Self = Self { counts_terminating: false };
}

impl Lifecycle for Deployment {
    fn resets(&self, subresource: Option<Subresource>) -> Option<&'static [&'static [&'static str]]> {
        (subresource == Some(Subresource::Status)).then_some(&[&["spec"], &["metadata", "labels"]])
    }

    fn default(&self, deployment: &mut Value) {
        let spec = deployment.object_mut("spec");
        spec.or_insert("replicas", 1);
        default_rollout(spec.object_mut("strategy"));
        spec.or_insert("revisionHistoryLimit", 10);
        spec.or_insert("progressDeadlineSeconds", 600);
        template::default(spec);
    }

    fn prepare_for_create(&self, deployment: &mut Value) {
        workload::drop_disabled(deployment);
    }

    fn prepare_for_update(&self, new: &mut Value, _: &Value) {
        workload::drop_disabled(new);
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.object_mut("metadata").restore("labels", old.at("metadata"));
        if !self.counts_terminating {
            workload::drop_terminating_replicas(new, old);
        }
    }

    /// Includes annotations, because a deployment's replica sets have copies of them.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let annotations = |deployment: &Value| deployment.at("metadata").at("annotations").clone();
        new.at("spec") != old.at("spec") || annotations(new) != annotations(old)
    }
}

impl Validation for Deployment {
    fn validate(&self, deployment: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(deployment, &mut errors);
        check_spec(deployment, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_spec(new, old, &mut errors);
        workload::keep_selector(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        check_status(new.at("status"), old.at("status"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        template::warnings(new, old, |old| self.changes_generation(new, old))
    }
}

fn check_spec(deployment: &Value, old: &Value, errors: &mut Errors) {
    let spec = deployment.at("spec");
    let path = Path::root("spec");
    nonnegative_field(spec, "replicas", &path, errors);
    template::check_selected(spec, old.at("spec"), &path, errors);
    check_rollout(spec.at("strategy"), &path.child("strategy"), errors);
    nonnegative_field(spec, "minReadySeconds", &path, errors);
    nonnegative_field(spec, "revisionHistoryLimit", &path, errors);
    if let Some(deadline) = spec.int("progressDeadlineSeconds") {
        let path = path.child("progressDeadlineSeconds");
        nonnegative(deadline, &path, errors);
        if deadline <= spec.count("minReadySeconds") {
            errors.invalid(&path, deadline, "must be greater than minReadySeconds");
        }
    }
}

fn check_rollout(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    match strategy.text("type") {
        "Recreate" if strategy.has("rollingUpdate") => {
            errors.forbidden(
                &path.child("rollingUpdate"),
                "may not be specified when strategy `type` is 'Recreate'",
            );
        }
        "Recreate" => {}
        "RollingUpdate" => {
            check_rolling_update(strategy.at("rollingUpdate"), &path.child("rollingUpdate"), errors)
        }
        _ => {
            let shown = declared::of(strategy, &declared::ROLLOUT);
            errors.not_supported(path, shown, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn check_rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    let unavailable_path = path.child("maxUnavailable");
    workload::check_int_or_percent(unavailable, &unavailable_path, errors);
    workload::check_int_or_percent(surge, &path.child("maxSurge"), errors);
    if workload::int_or_percent(unavailable) == 0 && workload::int_or_percent(surge) == 0 {
        errors.invalid(&unavailable_path, unavailable.clone(), "may not be 0 when `maxSurge` is 0");
    }
    workload::check_at_most_all(unavailable, &unavailable_path, errors);
}

fn check_status(status: &Value, old: &Value, errors: &mut Errors) {
    let counts = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "terminatingReplicas",
        "collisionCount",
    ];
    workload::check_counts(status, &counts, errors);
    workload::check_parts(status, &["updatedReplicas", "readyReplicas", "availableReplicas"], errors);
    workload::check_available(status, "readyReplicas", errors);
    workload::check_collisions(status, old, errors);
}

fn default_rollout(strategy: &mut Value) {
    strategy.or_text("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.object_mut("rollingUpdate");
        rolling.or_insert("maxUnavailable", "25%");
        rolling.or_insert("maxSurge", "25%");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn deployment(change: impl FnOnce(&mut Value)) -> Value {
        let mut deployment = json!({"spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        change(deployment.object_mut("spec"));
        deployment
    }

    #[test]
    fn a_rolling_update_must_allow_progress() {
        let rolling = |unavailable: Value, surge: Value| {
            let rolling = json!({"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}});
            deployment(|spec| spec.set("strategy", rolling))
        };
        let path = "Invalid spec.strategy.rollingUpdate.maxUnavailable";
        check::create(&Deployment::DEFAULT, rolling(json!("50%"), json!(0)), &[]);
        check::create(&Deployment::DEFAULT, rolling(json!(0), json!("0%")), &[path]);
        check::create(&Deployment::DEFAULT, rolling(json!("101%"), json!(1)), &[path]);
        check::create(&Deployment::DEFAULT, rolling(json!("x"), json!(1)), &[path]);
        check::create(
            &Deployment::DEFAULT,
            rolling(json!(1), json!(-1)),
            &["Invalid spec.strategy.rollingUpdate.maxSurge"],
        );
    }

    #[test]
    fn the_selector_matches_the_template() {
        let selector = |selector: Value| deployment(|spec| spec.set("selector", selector));
        check::create(&Deployment::DEFAULT, deployment(|_| ()), &[]);
        check::create(
            &Deployment::DEFAULT,
            deployment(|spec| _ = spec.unset("selector")),
            &["Required spec.selector", "Invalid spec.template.metadata.labels"],
        );
        check::create(&Deployment::DEFAULT, selector(json!({})), &["Invalid spec.selector"]);
        check::create(
            &Deployment::DEFAULT,
            selector(json!({"matchLabels": {"a": "c"}})),
            &["Invalid spec.template.metadata.labels"],
        );
        check::create(
            &Deployment::DEFAULT,
            selector(json!({"matchExpressions": [{"key": "a", "operator": "X"}]})),
            &["Invalid spec.selector.matchExpressions[0].operator", "Invalid spec.selector"],
        );
        let other = selector(
            json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}),
        );
        check::update(&Deployment::DEFAULT, other, &deployment(|_| ()), &["Invalid spec.selector"]);
    }

    #[test]
    fn counts_are_consistent() {
        let status = |status: Value, old: Value| {
            check::shown(
                &Deployment::DEFAULT
                    .validate_status_update(&json!({"status": status}), &json!({"status": old})),
            )
        };
        assert!(status(json!({"replicas": 2, "readyReplicas": 1}), json!({})).is_empty());
        assert_eq!(
            status(json!({"replicas": 1, "availableReplicas": 2}), json!({"collisionCount": 1})),
            [
                "Invalid status.availableReplicas",
                "Invalid status.availableReplicas",
                "Invalid status.collisionCount"
            ]
        );
    }

    #[test]
    fn deadlines_leave_time_to_become_ready() {
        check::create(
            &Deployment::DEFAULT,
            deployment(|spec| {
                spec.set("progressDeadlineSeconds", 5);
                spec.set("minReadySeconds", 5);
                spec.set("replicas", -1);
            }),
            &["Invalid spec.replicas", "Invalid spec.progressDeadlineSeconds"],
        );
    }

    #[test]
    fn annotations_increment_the_generation() {
        let old = json!({"metadata": {}, "spec": {"replicas": 1}});
        assert!(
            !Deployment::DEFAULT.changes_generation(
                &json!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 1}}),
                &old
            )
        );
        assert!(Deployment::DEFAULT.changes_generation(
            &json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"replicas": 1}}),
            &old
        ));
    }
}
