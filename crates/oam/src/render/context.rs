//! The `context` of templates.

use serde_json::{Map, Value, json};

/// The application, as templates see it.
#[derive(Clone, Debug, Default)]
pub(crate) struct AppContext {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) revision: String,
    pub(crate) revision_number: i64,
    pub(crate) labels: Map<String, Value>,
    pub(crate) annotations: Map<String, Value>,
    pub(crate) publish_version: String,
    pub(crate) workflow_name: String,
    pub(crate) components: Value,
    pub(crate) cluster_version: ClusterVersion,
    /// Data of a WorkflowRun, which is not an application.
    pub(crate) of_run: Option<Map<String, Value>>,
}

/// The version of the API server.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ClusterVersion {
    pub(crate) major: String,
    pub(crate) minor: i64,
    pub(crate) git_version: String,
    pub(crate) platform: String,
}

/// The component and the placement for rendering.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place<'a> {
    pub(crate) component: &'a str,
    pub(crate) component_type: &'a str,
    pub(crate) component_revision: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) cluster: &'a str,
    pub(crate) replica_key: &'a str,
    /// The version of the cluster, if it is not the local one.
    pub(crate) cluster_version: Option<ClusterVersion>,
}

impl ClusterVersion {
    /// Parses the response of `/version`. A minor version may have a suffix, as in `27+`.
    pub(crate) fn of(reply: &Value) -> Self {
        let text = |field: &str| reply[field].as_str().unwrap_or_default().to_owned();
        let minor: String = text("minor").chars().take_while(char::is_ascii_digit).collect();
        Self {
            major: text("major"),
            minor: minor.parse().unwrap_or_default(),
            git_version: text("gitVersion"),
            platform: text("platform"),
        }
    }

    fn value(&self) -> Value {
        json!({
            "major": self.major, "minor": self.minor,
            "gitVersion": self.git_version, "platform": self.platform,
        })
    }
}

impl AppContext {
    /// Returns the context of a component's templates.
    pub(crate) fn of_component(&self, place: &Place<'_>) -> Map<String, Value> {
        let mut context = self.shared();
        context.insert("name".into(), place.component.into());
        context.insert("namespace".into(), place.namespace.into());
        context.insert("cluster".into(), place.cluster.into());
        context.insert("revision".into(), place.component_revision.into());
        context.insert("componentType".into(), place.component_type.into());
        if !place.replica_key.is_empty() {
            context.insert("replicaKey".into(), place.replica_key.into());
        }
        if let Some(version) = &place.cluster_version {
            context.insert("clusterVersion".into(), version.value());
        }
        context
    }

    /// Returns the context of a workflow step, where the name is the application's.
    pub(crate) fn of_step(&self, step: &str, group: &str, session: &str) -> Map<String, Value> {
        let mut context = self.shared();
        context.insert("name".into(), self.name.clone().into());
        context.insert("namespace".into(), self.namespace.clone().into());
        context.insert("stepName".into(), step.into());
        context.insert("stepSessionID".into(), session.into());
        context.insert("spanID".into(), session.into());
        if !group.is_empty() {
            context.insert("stepGroupName".into(), group.into());
        }
        context
    }

    fn shared(&self) -> Map<String, Value> {
        if let Some(data) = &self.of_run {
            return data.clone();
        }
        let fields: [(&str, Value); 8] = [
            ("appName", self.name.clone().into()),
            ("appRevision", self.revision.clone().into()),
            ("appRevisionNum", self.revision_number.into()),
            ("appLabels", self.labels.clone().into()),
            ("appAnnotations", self.annotations.clone().into()),
            ("publishVersion", self.publish_version.clone().into()),
            ("workflowName", self.workflow_name.clone().into()),
            ("components", self.components.clone()),
        ];
        let mut context: Map<String, Value> =
            fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        context.insert("clusterVersion".into(), self.cluster_version.value());
        context
    }
}
