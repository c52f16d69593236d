//! ComponentStatuses: the health of control plane components, superseded by health endpoints.

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::{CORE, entry};
use crate::json::Json;
use crate::kind::{Deprecation, Kind, Scope, Verb};
use crate::strategy::{Lifecycle, Validation};
use crate::table::Column;

pub fn kind() -> Kind {
    Kind {
        short_names: vec!["cs".into()],
        scope: Scope::Cluster,
        verbs: vec![Verb::Get, Verb::List],
        columns: vec![
            Column::name(),
            Column::text("Status", "Status of the component conditions", |component, _| {
                health(component).into()
            }),
            Column::text("Message", "Message of the component conditions", |component, _| {
                healthy(component).text("message").into()
            }),
            Column::text("Error", "Error of the component conditions", |component, _| {
                healthy(component).text("error").into()
            }),
        ],
        deprecation: Some(Deprecation::new("v1 ComponentStatus is deprecated in v1.19+")),
        ..entry(&CORE, "ComponentStatus", "componentstatuses", ComponentStatus)
    }
}

fn healthy(component: &Value) -> &Value {
    let conditions = component.list("conditions").iter();
    conditions.into_iter().find(|condition| condition.text("type") == "Healthy").unwrap_or(&Value::Null)
}

fn health(component: &Value) -> &'static str {
    match healthy(component).text("status") {
        _ if healthy(component).is_null() => "Unknown",
        "True" => "Healthy",
        _ => "Unhealthy",
    }
}

struct ComponentStatus;

impl Lifecycle for ComponentStatus {
    /// Reports the store, the only component this server knows: it is healthy if the server responds.
    fn computed<'a>(&'a self, _namespace: Option<&'a str>) -> Option<BoxFuture<'a, Vec<Value>>> {
        let healthy = json!({"type": "Healthy", "status": "True", "message": "ok"});
        let store = json!({"metadata": {"name": "etcd-0"}, "conditions": [healthy]});
        Some(std::future::ready(vec![store]).boxed())
    }
}

impl Validation for ComponentStatus {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_read_from_its_condition() {
        let component = |status: &str| json!({"conditions": [{"type": "Healthy", "status": status}]});
        assert_eq!(health(&component("True")), "Healthy");
        assert_eq!(health(&component("False")), "Unhealthy");
        assert_eq!(health(&json!({})), "Unknown");
    }
}
