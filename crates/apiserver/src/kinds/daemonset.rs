//! DaemonSets.

use serde_json::{Value, json};

use super::pod::template;
use super::{APPS, entry, metadata, selector, workload};
use crate::declared;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, Presentation, Semantics, Validation};
use crate::table::{Column, or_none};
use crate::validation::labels::{self, Values};
use crate::validation::nonnegative_field;

pub fn kind() -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::integer("Desired", DESIRED, |set, _| set.at("status").count("desiredNumberScheduled").into()),
        Column::integer("Current", CURRENT, |set, _| set.at("status").count("currentNumberScheduled").into()),
        Column::integer("Ready", READY, |set, _| set.at("status").count("numberReady").into()),
        Column::integer("Up-to-date", UP_TO_DATE, |set, _| {
            set.at("status").count("updatedNumberScheduled").into()
        }),
        Column::integer("Available", AVAILABLE, |set, _| set.at("status").count("numberAvailable").into()),
        Column::text("Node Selector", NODE_SELECTOR, |set, _| {
            let spec = set.at("spec").at("template").at("spec");
            or_none(&selector::shown_labels(spec.map("nodeSelector")))
        }),
        Column::age(),
    ];
    columns.extend(template::columns(SELECTOR));
    Kind {
        short_names: vec!["ds".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Status],
        columns,
        presentation: Presentation { field_annotations: &[TEMPLATE_GENERATION], ..Presentation::default() },
        semantics: Semantics::with_status(|| {
            json!({
                "currentNumberScheduled": 0, "numberMisscheduled": 0, "desiredNumberScheduled": 0, "numberReady": 0,
            })
        }),
        ..entry(&APPS, "DaemonSet", "daemonsets", DaemonSet)
    }
}

const DESIRED: &str = "The total number of nodes that should be running the daemon pod (including nodes correctly running the daemon pod). More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/";
const CURRENT: &str = "The number of nodes that are running at least 1 daemon pod and are supposed to run the daemon pod. More info: https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/";
const READY: &str = "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and ready.";
const UP_TO_DATE: &str = "The total number of nodes that are running updated daemon pod";
const AVAILABLE: &str = "The number of nodes that should be running the daemon pod and have one or more of the daemon pod running and available (ready for at least spec.minReadySeconds)";
const NODE_SELECTOR: &str = "NodeSelector is a selector which must be true for the pod to fit on a node. Selector which must match a node's labels for the pod to be scheduled on that node. More info: https://kubernetes.io/docs/concepts/configuration/assign-pod-node/";
const SELECTOR: &str = "A label query over pods that are managed by the daemon set. Must match in order to be controlled. If empty, defaulted to labels on Pod template. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

/// The annotation with the template generation, for which this version has no field.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

struct DaemonSet;

impl Lifecycle for DaemonSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_mut("spec");
        default_rollout(spec.object_mut("updateStrategy"));
        spec.or_insert("revisionHistoryLimit", 10);
        template::default(spec);
        set_template_generation(set, template_generation(set));
    }

    fn prepare_for_create(&self, set: &mut Value) {
        workload::drop_disabled(set);
        set_template_generation(set, template_generation(set).max(1));
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        workload::drop_disabled(new);
        let is_new_template = new.at("spec").at("template") != old.at("spec").at("template");
        set_template_generation(new, template_generation(old).wrapping_add(i64::from(is_new_template)));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        set_template_generation(new, template_generation(old));
    }
}

impl Validation for DaemonSet {
    fn validate(&self, set: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(set, &mut errors);
        check_spec(set, &Value::Null, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        workload::keep_selector(new, old, &mut errors);
        check_spec(new, old, &mut errors);
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let counts = [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ];
        workload::check_counts(new.at("status"), &counts, &mut errors);
        workload::check_collisions(new.at("status"), old.at("status"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        if old.is_none_or(|old| template_generation(new) != template_generation(old)) {
            let path = Path::root("spec");
            template::warn(new.at("spec").at("template"), &path.child("template"), &mut found);
        }
        found
    }
}

fn default_rollout(strategy: &mut Value) {
    strategy.or_text("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.object_mut("rollingUpdate");
        rolling.or_insert("maxUnavailable", 1);
        rolling.or_insert("maxSurge", 0);
    }
}

fn template_generation(set: &Value) -> i64 {
    set.at("metadata").at("annotations").text(TEMPLATE_GENERATION).parse().unwrap_or(0)
}

fn set_template_generation(set: &mut Value, generation: i64) {
    let annotations = set.object_mut("metadata").object_mut("annotations");
    annotations.set(TEMPLATE_GENERATION, generation.to_string());
}

fn check_spec(set: &Value, old: &Value, errors: &mut Errors) {
    let spec = set.at("spec");
    let path = Path::root("spec");
    check_selector(spec, old.at("spec"), &path, errors);
    let template_path = path.child("template");
    template::check(spec.at("template"), old.at("spec").at("template"), &template_path, errors);
    template::check_runs_forever(spec.at("template"), "DaemonSet", &template_path, errors);
    nonnegative_field(spec, "minReadySeconds", &path, errors);
    check_rollout(spec.at("updateStrategy"), &path.child("updateStrategy"), errors);
    nonnegative_field(spec, "revisionHistoryLimit", &path, errors);
}

fn check_selector(spec: &Value, old: &Value, path: &Path<'_>, errors: &mut Errors) {
    let selector_path = path.child("selector");
    let selector = spec.at("selector");
    let values = match labels::has_bad_values(old.at("selector")) {
        true => Values::Unchecked,
        false => Values::Checked,
    };
    let before = errors.0.len();
    labels::selector(selector, values, &selector_path, errors);
    if errors.0.len() == before {
        template::check_labels(selector, spec.at("template"), &path.child("template"), errors);
    }
    if !selector.is_null() && selector::is_empty(selector) {
        errors.invalid(&selector_path, selector.clone(), "empty selector is invalid for daemonset");
    }
}

fn check_rollout(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    match strategy.text("type") {
        "OnDelete" => {}
        "RollingUpdate" => {
            check_rolling_update(strategy.at("rollingUpdate"), &path.child("rollingUpdate"), errors)
        }
        _ => {
            let shown = declared::of(strategy, &declared::ROLLOUT);
            errors.not_supported(path, shown, &["RollingUpdate", "OnDelete"]);
        }
    }
}

/// Validates a rolling update: it stops the old pod first or starts the new one first, not both.
fn check_rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
    let (unavailable_path, surge_path) = (path.child("maxUnavailable"), path.child("maxSurge"));
    workload::check_int_or_percent(unavailable, &unavailable_path, errors);
    workload::check_int_or_percent(surge, &surge_path, errors);
    workload::check_at_most_all(unavailable, &unavailable_path, errors);
    workload::check_at_most_all(surge, &surge_path, errors);
    match (workload::int_or_percent(unavailable), workload::int_or_percent(surge)) {
        (0, 0) => errors.required(&unavailable_path, "cannot be 0 when maxSurge is 0"),
        (0, _) | (_, 0) => {}
        _ => errors.invalid(&surge_path, surge.clone(), "may not be set when maxUnavailable is non-zero"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn set(change: impl FnOnce(&mut Value)) -> Value {
        let mut set = json!({"metadata": {}, "spec": {"selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        change(set.object_mut("spec"));
        set
    }

    #[test]
    fn a_rollout_surges_or_takes_down_but_not_both() {
        let rolling = |unavailable: Value, surge: Value| {
            let rolling = json!({"rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge}});
            set(|spec| spec.set("updateStrategy", rolling))
        };
        let path = "spec.updateStrategy.rollingUpdate";
        check::create(&DaemonSet, rolling(json!("50%"), json!(0)), &[]);
        check::create(&DaemonSet, rolling(json!(0), json!(1)), &[]);
        check::create(&DaemonSet, rolling(json!(1), json!(1)), &[&format!("Invalid {path}.maxSurge")]);
        check::create(&DaemonSet, rolling(json!(0), json!(0)), &[&format!("Required {path}.maxUnavailable")]);
        check::create(
            &DaemonSet,
            rolling(json!("101%"), json!(0)),
            &[&format!("Invalid {path}.maxUnavailable")],
        );
    }

    #[test]
    fn the_selector_matches_the_template_and_stays() {
        check::create(&DaemonSet, set(|_| ()), &[]);
        check::create(
            &DaemonSet,
            set(|spec| spec.set("selector", json!({"matchLabels": {"a": "c"}}))),
            &["Invalid spec.template.metadata.labels"],
        );
        check::create(&DaemonSet, set(|spec| spec.set("selector", json!({}))), &["Invalid spec.selector"]);
        let expressed = json!({"matchExpressions": [{"key": "a", "operator": "Exists"}]});
        check::update(
            &DaemonSet,
            set(|spec| spec.set("selector", expressed)),
            &set(|_| ()),
            &["Invalid spec.selector"],
        );
    }

    #[test]
    fn a_changed_template_increments_the_template_generation() {
        let mut old = set(|_| ());
        DaemonSet.default(&mut old);
        DaemonSet.prepare_for_create(&mut old);
        assert_eq!(template_generation(&old), 1);
        let mut new = old.clone();
        new["spec"]["minReadySeconds"] = 5.into();
        DaemonSet.prepare_for_update(&mut new, &old);
        assert_eq!(template_generation(&new), 1);
        new["spec"]["template"]["spec"]["containers"][0]["image"] = "j".into();
        DaemonSet.prepare_for_update(&mut new, &old);
        assert_eq!(template_generation(&new), 2);
    }
}
