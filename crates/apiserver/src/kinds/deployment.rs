//! Deployments.

use serde_json::{Value, json};

use super::pod::template;
use super::{APPS, entry};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::text("Ready", "Number of the pod with ready state", |deployment, _| ready(deployment).into()),
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
        ..entry(&APPS, "Deployment", "deployments", Deployment)
    }
}

const UP_TO_DATE: &str =
    "Total number of non-terminating pods targeted by this deployment that have the desired template spec.";
const AVAILABLE: &str = "Total number of available non-terminating pods (ready for at least minReadySeconds) targeted by this deployment.";
const SELECTOR: &str = "Label selector for pods. Existing ReplicaSets whose pods are selected by this will be the ones affected by this deployment.";

fn ready(deployment: &Value) -> String {
    format!("{}/{}", deployment.at("status").count("readyReplicas"), deployment.at("spec").count("replicas"))
}

struct Deployment;

impl Strategy for Deployment {
    fn default(&self, deployment: &mut Value) {
        let spec = deployment.object_mut("spec");
        spec.or_insert("replicas", 1);
        default_rollout(spec.object_mut("strategy"));
        spec.or_insert("revisionHistoryLimit", 10);
        spec.or_insert("progressDeadlineSeconds", 600);
        template::default(spec);
    }

    fn prepare_for_create(&self, deployment: &mut Value) {
        deployment.set("status", json!({}));
        template::drop_disabled(deployment.object_mut("spec"), &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
        template::drop_disabled(new.object_mut("spec"), old.at("spec"));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
        new.object_mut("metadata").restore("labels", old.at("metadata"));
        drop_terminating_replicas(new, old);
    }

    /// Annotations count, because a deployment's replica sets carry copies of them.
    fn changes_generation(&self, new: &Value, old: &Value) -> bool {
        let annotations = |deployment: &Value| deployment.at("metadata").at("annotations").clone();
        new.at("spec") != old.at("spec") || annotations(new) != annotations(old)
    }
}

fn default_rollout(strategy: &mut Value) {
    strategy.or_text("type", "RollingUpdate");
    if strategy.text("type") == "RollingUpdate" {
        let rolling = strategy.object_mut("rollingUpdate");
        rolling.or_insert("maxUnavailable", "25%");
        rolling.or_insert("maxSurge", "25%");
    }
}

/// Counting terminating replicas is off in v1.34: the field stays only where it already is.
pub(super) fn drop_terminating_replicas(new: &mut Value, old: &Value) {
    if !old.at("status").has("terminatingReplicas")
        && let Some(status) = new.at_mut("status")
    {
        status.unset("terminatingReplicas");
    }
}
