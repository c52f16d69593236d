//! Values that steps pass on or remember between rounds. Stored in a ConfigMap of the application or run.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use setpoint::{Key, Kind};

use crate::apply::cluster::{Cluster, ClusterError};
use crate::apply::identity::Identity;

/// The maximum size of all variables. They are kept in one ConfigMap, which has at most 1 MiB; quotes in it are
/// escaped.
const MAX_BYTES: usize = 400 << 10;

/// The variables of one run of a workflow.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Variables {
    pub(crate) values: Map<String, Value>,
    /// Calls that have suspended and been resumed, by step.
    pub(crate) resumed: BTreeSet<String>,
}

/// The Application or WorkflowRun of these variables.
pub(crate) struct Owner {
    pub(crate) key: Key,
    pub(crate) uid: String,
    pub(crate) is_run: bool,
}

impl Owner {
    /// The ConfigMap. An Application and a WorkflowRun may have the same name.
    fn identity(&self) -> Identity {
        let kind = Kind::new("", "v1", "ConfigMap", "configmaps", true);
        let suffix = if self.is_run { "-run" } else { "" };
        Identity { kind, key: self.key.sibling(format!("workflow-{}-context{suffix}", self.key.name())) }
    }

    fn reference(&self) -> Value {
        let (version, kind) =
            if self.is_run { ("v1alpha1", "WorkflowRun") } else { ("v1beta1", "Application") };
        json!({
            "apiVersion": format!("core.oam.dev/{version}"), "kind": kind, "name": self.key.name(),
            "uid": self.uid, "controller": true,
        })
    }
}

impl Variables {
    /// Sets a variable. Fails if there is no room for it.
    pub(crate) fn set(&mut self, name: String, value: Value) -> Result<(), String> {
        let others = self.values.iter().filter(|(known, _)| **known != name);
        let size: usize = others.map(|(name, value)| name.len() + value.to_string().len()).sum();
        if size + name.len() + value.to_string().len() > MAX_BYTES {
            return Err(format!("variable {name}: all variables together may have {} KiB", MAX_BYTES >> 10));
        }
        self.values.insert(name, value);
        Ok(())
    }

    /// Reads the variables of a running workflow.
    pub(crate) async fn load(cluster: &Cluster, of: &Owner) -> Result<Self, ClusterError> {
        let Some(config) = cluster.get(&of.identity()).await? else { return Ok(Self::default()) };
        let parsed = |name: &str| {
            let text = config["data"][name].as_str().unwrap_or("null");
            serde_json::from_str::<Value>(text).unwrap_or_default()
        };
        let resumed = parsed("resumed");
        Ok(Self {
            values: parsed("vars").as_object().cloned().unwrap_or_default(),
            resumed: resumed
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect(),
        })
    }

    /// Writes the variables. Returns the reference for the status.
    pub(crate) async fn save(&self, cluster: &Cluster, of: &Owner) -> Result<Value, ClusterError> {
        let identity = of.identity();
        let manifest = json!({
            "metadata": {"ownerReferences": [of.reference()]},
            "data": {
                "vars": Value::Object(self.values.clone()).to_string(),
                "resumed": json!(self.resumed).to_string(),
            },
        });
        let manager = crate::names::FIELD_MANAGER;
        let none = setpoint::client::Subresource::None;
        let written = cluster.client.apply(&identity.kind, &identity.key, none, manager, manifest).await;
        written.map_err(|error| ClusterError::new(format!("write {identity}"), error))?;
        Ok(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "name": identity.key.name(), "namespace": identity.namespace(),
        }))
    }
}
