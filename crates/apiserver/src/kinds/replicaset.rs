//! ReplicaSets.

use serde_json::{Value, json};

use super::deployment::drop_terminating_replicas;
use super::pod::template;
use super::{APPS, entry};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::Strategy;
use crate::table::Column;

pub fn kind() -> Kind {
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
        ..entry(&APPS, "ReplicaSet", "replicasets", ReplicaSet)
    }
}

const DESIRED: &str = "Replicas is the number of desired pods. This is a pointer to distinguish between explicit zero and unspecified. Defaults to 1. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
const CURRENT: &str = "Replicas is the most recently observed number of non-terminating pods. More info: https://kubernetes.io/docs/concepts/workloads/controllers/replicaset";
const READY: &str = "The number of non-terminating pods targeted by this ReplicaSet with a Ready Condition.";
const SELECTOR: &str = "Selector is a label query over pods that should match the replica count. If the selector is empty, it is defaulted to the labels present on the pod template. Label keys and values that must match in order to be controlled by this replica set. More info: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors";

struct ReplicaSet;

impl Strategy for ReplicaSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_mut("spec");
        spec.or_insert("replicas", 1);
        template::default(spec);
    }

    fn prepare_for_create(&self, set: &mut Value) {
        set.set("status", json!({"replicas": 0}));
        template::drop_disabled(set.object_mut("spec"), &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        new.restore("status", old);
        template::drop_disabled(new.object_mut("spec"), old.at("spec"));
    }

    fn prepare_for_status_update(&self, new: &mut Value, old: &Value) {
        new.restore("spec", old);
        drop_terminating_replicas(new, old);
    }
}
