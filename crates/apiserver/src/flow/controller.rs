//! Maintains the objects of priority and fairness, like v1.34's controllers: mandatory and suggested objects exist and
//! are up to date, and each FlowSchema has a condition that says whether its level exists.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use setpoint_clock::Instant;
use setpoint_store::{ListOptions, Resource, Store, Watch};

use super::objects::{self, Schema};
use crate::json::{Json, JsonMut};
use crate::kinds::flowcontrol::{GROUP, bootstrap, is_same};
use crate::loopback::managed_by;
use crate::metadata;
use crate::registry::Gvr;
use crate::server::Server;
use crate::status::Status;
use crate::system_objects::{self, FLOW_CONSUMER, FLOW_PRODUCER};

/// How often to check the mandatory and suggested objects.
const ENSURE_EVERY: Duration = Duration::from_secs(60);
/// Maximum status writes per schema and minute: servers of different versions may disagree on it.
const WRITES_PER_MINUTE: usize = 6;

/// The controller. There is one for each server.
pub(crate) struct FlowController {
    watches: Option<(Watch, Watch)>,
    /// Status writes in the last minute: time and schema.
    written: VecDeque<(Instant, String)>,
    ensured: Option<Instant>,
}

impl FlowController {
    pub(crate) fn new() -> Self {
        Self { watches: None, written: VecDeque::new(), ensured: None }
    }

    /// Waits until an object has changed. Never returns for a server without priority and fairness. Cancel-safe.
    pub(crate) async fn changed(&mut self, server: &Server) {
        if server.flow.as_ref().and_then(|flow| flow.fair()).is_none() {
            return std::future::pending().await;
        }
        let Some((schemas, levels)) = self.watches(&*server.store) else {
            return std::future::pending().await;
        };
        let over = tokio::select! {
            changes = schemas.next() => changes.is_err(),
            changes = levels.next() => changes.is_err(),
        };
        if over {
            // On a closed store every watch ends immediately, so do not spin.
            self.watches = None;
            std::future::pending().await
        }
    }

    fn watches(&mut self, store: &dyn Store) -> Option<&mut (Watch, Watch)> {
        if self.watches.is_none() {
            let revision = store.revision();
            let watch = |resource: Resource| store.watch(resource.all(), revision).ok();
            self.watches = watch(objects::schemas()).zip(watch(objects::levels()));
        }
        self.watches.as_mut()
    }

    /// Writes what is out of date.
    pub(crate) async fn keep(&mut self, server: &Server) {
        if server.flow.as_ref().and_then(|flow| flow.fair()).is_none() {
            return;
        }
        let now = server.clock.instant();
        if self.ensured.is_none_or(|at| now.saturating_duration_since(at) >= ENSURE_EVERY) {
            self.ensured = Some(now);
            if let Err(why) = ensure(server).await {
                tracing::warn!(why = why.message, "cannot update the objects of priority and fairness");
            }
        }
        self.keep_conditions(server, now).await;
    }

    async fn keep_conditions(&mut self, server: &Server, now: Instant) {
        self.forget_writes(now);
        for (name, condition) in conditions_to_write(server).await {
            if self.written.iter().filter(|(_, written)| *written == name).count() >= WRITES_PER_MINUTE {
                continue;
            }
            let path = managed_by(FLOW_CONSUMER, &format!("{}/status", path("flowschemas", &name)));
            let applied = objects::with_condition(&name, &condition);
            self.written.push_back((now, name));
            // A removed schema needs no condition.
            if let Err(why) = server.loopback_apply(&format!("{path}&force=true"), &applied, &[404]).await {
                tracing::warn!(why = why.message, "cannot write the condition of a FlowSchema");
            }
        }
    }

    fn forget_writes(&mut self, now: Instant) {
        let minute = Duration::from_secs(60);
        while self.written.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) >= minute) {
            self.written.pop_front();
        }
    }
}

/// Returns the schemas whose condition is out of date, with the new condition.
async fn conditions_to_write(server: &Server) -> Vec<(String, Value)> {
    let Some(fair) = server.flow.as_ref().and_then(|flow| flow.fair()) else { return Vec::new() };
    if let Err(error) = fair.config().await {
        tracing::warn!(%error, "cannot read the FlowSchemas");
        return Vec::new();
    }
    let state = fair.state.read();
    let Some(state) = &*state else { return Vec::new() };
    let fed = &state.fed;
    let wanted = |schema: &Schema| dangling(&schema.level, !fed.levels.contains_key(&schema.level));
    let now = metadata::seconds(server.now());
    let change = |schema: &Schema| {
        let wanted = wanted(schema);
        let of_type = |condition: &&Value| condition.text("type") == "Dangling";
        let current = schema.conditions.iter().find(of_type);
        let is_right = current.is_some_and(|current| {
            ["status", "reason", "message"].iter().all(|field| current.text(field) == wanted.text(field))
        });
        if is_right {
            return None;
        }
        let mut wanted = wanted;
        wanted.set("lastTransitionTime", now.as_str());
        Some((schema.name.clone(), wanted))
    };
    fed.schemas.values().filter_map(change).collect()
}

fn dangling(level: &str, is_dangling: bool) -> Value {
    let (status, reason, end) = match is_dangling {
        true => ("True", "NotFound", "but there is no such object"),
        false => ("False", "Found", "and it exists"),
    };
    let message =
        format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}");
    json!({"type": "Dangling", "status": status, "reason": reason, "message": message})
}

fn path(resource: &str, name: &str) -> String {
    system_objects::path(&Gvr::new(GROUP, "v1", resource), "", name)
}

/// Creates missing objects, updates those that may be updated, and removes objects that earlier versions suggested.
async fn ensure(server: &Server) -> Result<(), Status> {
    let (levels, schemas) = (bootstrap::priority_levels(), bootstrap::flow_schemas());
    let current_levels = current(server, objects::levels()).await?;
    let current_schemas = current(server, objects::schemas()).await?;
    let parts = [
        ("prioritylevelconfigurations", &levels, &current_levels),
        ("flowschemas", &schemas, &current_schemas),
    ];
    for is_mandatory in [false, true] {
        for (resource, wanted, current) in parts {
            for object in wanted.iter().filter(|object| bootstrap::is_mandatory(object) == is_mandatory) {
                ensure_one(server, resource, object, current, is_mandatory).await?;
            }
        }
    }
    for (resource, wanted, current) in parts.into_iter().rev() {
        remove_unwanted(server, resource, wanted, current).await?;
    }
    Ok(())
}

/// Returns the objects of a resource, by name.
async fn current(server: &Server, resource: Resource) -> Result<BTreeMap<String, Value>, Status> {
    let page = server.store.list(&resource.all(), ListOptions::default()).await;
    let page = page.map_err(|why| server.refusal(why))?;
    let parse = |record: &std::sync::Arc<setpoint_store::Record>| {
        Some((record.key.path.to_string(), serde_json::from_slice(&record.value).ok()?))
    };
    Ok(page.records.iter().filter_map(parse).collect())
}

async fn ensure_one(
    server: &Server,
    resource: &str,
    wanted: &Value,
    current: &BTreeMap<String, Value>,
    is_mandatory: bool,
) -> Result<(), Status> {
    let name = wanted.at("metadata").text("name");
    let Some(current) = current.get(name) else {
        // Another client may have created it in the meantime.
        let path = managed_by(FLOW_PRODUCER, &path(resource, ""));
        server.loopback_request(Method::POST, &path, wanted, &[409]).await?;
        return Ok(());
    };
    if let Some(revised) = revised(current, wanted, is_mandatory) {
        // Another client may have changed it in the meantime: it is checked again.
        let path = managed_by(FLOW_PRODUCER, &path(resource, name));
        server.loopback_request(Method::PUT, &path, &revised, &[404, 409]).await?;
    }
    Ok(())
}

/// Returns the updated object if it is outdated. The spec of a suggested object is updated unless an operator has
/// changed it, according to the annotation or, without one, the generation.
fn revised(current: &Value, wanted: &Value, is_mandatory: bool) -> Option<Value> {
    let annotation = annotation(current);
    let follows =
        is_mandatory || annotation.unwrap_or_else(|| current.at("metadata").count("generation") == 1);
    let has_other_spec = follows && !specs_match(wanted, current);
    if annotation == Some(follows) && !has_other_spec {
        return None;
    }
    let mut revised = current.clone();
    if has_other_spec {
        revised.set("spec", wanted.at("spec").clone());
    }
    let annotations = revised.object_mut("metadata").object_mut("annotations");
    annotations.set(bootstrap::AUTO_UPDATE, if follows { "true" } else { "false" });
    Some(revised)
}

/// Returns whether an object's spec is auto-updated, if its annotation says so.
fn annotation(object: &Value) -> Option<bool> {
    parse_bool(object.at("metadata").at("annotations").text(bootstrap::AUTO_UPDATE))
}

/// Parses a boolean like Go.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Whether two specs are equal, except that operators may change the shares of the exempt level.
fn specs_match(wanted: &Value, current: &Value) -> bool {
    let (wanted, current) = (wanted.at("spec"), current.at("spec"));
    if wanted.text("type") == "Exempt" {
        return current.text("type") == "Exempt" && current.has("exempt") && !current.has("limited");
    }
    is_same(wanted, current)
}

async fn remove_unwanted(
    server: &Server,
    resource: &str,
    wanted: &[Value],
    current: &BTreeMap<String, Value>,
) -> Result<(), Status> {
    let is_wanted = |name: &str| wanted.iter().any(|object| object.at("metadata").text("name") == name);
    for (name, object) in current {
        if !is_wanted(name) && annotation(object) == Some(true) {
            server.loopback_request(Method::DELETE, &path(resource, name), &Value::Null, &[404]).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(annotation: Option<&str>, generation: i64, spec: Value) -> Value {
        let mut object = json!({"metadata": {"name": "n", "generation": generation}, "spec": spec});
        if let Some(annotation) = annotation {
            object["metadata"]["annotations"] = json!({bootstrap::AUTO_UPDATE: annotation});
        }
        object
    }

    #[test]
    fn a_suggested_object_is_updated_until_a_user_changes_it() {
        let wanted = object(Some("true"), 1, json!({"a": 2}));
        let spec = |current: &Value, is_mandatory| {
            revised(current, &wanted, is_mandatory).map(|revised| {
                let annotation = revised["metadata"]["annotations"][bootstrap::AUTO_UPDATE].clone();
                (revised["spec"]["a"].clone(), annotation)
            })
        };
        let changed = json!({"a": 1});
        assert_eq!(spec(&object(Some("true"), 3, changed.clone()), false), Some((json!(2), json!("true"))));
        assert_eq!(spec(&object(Some("false"), 3, changed.clone()), false), None);
        assert_eq!(spec(&object(Some("false"), 3, changed.clone()), true), Some((json!(2), json!("true"))));
        assert_eq!(spec(&object(None, 1, changed.clone()), false), Some((json!(2), json!("true"))));
        assert_eq!(spec(&object(None, 2, changed.clone()), false), Some((json!(1), json!("false"))));
        assert_eq!(spec(&object(Some("x"), 2, changed), false), Some((json!(1), json!("false"))));
        assert_eq!(spec(&object(Some("true"), 9, json!({"a": 2})), false), None);
    }

    #[test]
    fn the_shares_of_the_exempt_level_can_be_set() {
        let wanted = json!({"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0}}});
        let raised = json!({"spec": {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 9}}});
        assert!(specs_match(&wanted, &raised));
    }
}
