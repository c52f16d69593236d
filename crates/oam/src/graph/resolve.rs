//! An instance's objects, one resource after the other.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::instances::{Instances, Progress};
use super::label;
use super::parse::{Graph, MAX_ITEMS, Resource};
use crate::apply::cluster::{ClusterError, kind_of};
use crate::apply::drift;
use crate::apply::identity::Identity;
use crate::digest;
use crate::render::component::set_label;

/// What came of a resource.
enum Resolved {
    /// It exists and is ready.
    Ready(Value),
    /// It exists and is not ready, or cannot be made yet.
    Waiting(String),
    /// A condition leaves it out.
    Excluded,
}

/// The name under which a scope keeps the ids that were left out.
pub(super) const EXCLUDED: &str = " excluded";

impl Instances {
    /// Applies what can be applied.
    pub(super) async fn resolve(&self, graph: &Graph, instance: &Value) -> Progress {
        let mut progress = Progress::default();
        progress.scope.insert("schema".into(), instance.clone());
        let mut excluded: BTreeSet<String> = BTreeSet::new();
        for (order, resource) in graph.resources.iter().enumerate() {
            if resource.depends_on.iter().any(|id| excluded.contains(id)) {
                excluded.insert(resource.id.clone());
                continue;
            }
            if let Some(missing) = resource.depends_on.iter().find(|id| !progress.scope.contains_key(*id)) {
                progress.waiting.push(format!("{} waits for {missing}", resource.id));
                continue;
            }
            match self.one(graph, instance, resource, order, &mut progress).await {
                Ok(Resolved::Ready(value)) => drop(progress.scope.insert(resource.id.clone(), value)),
                Ok(Resolved::Waiting(why)) => progress.waiting.push(format!("{}: {why}", resource.id)),
                Ok(Resolved::Excluded) => drop(excluded.insert(resource.id.clone())),
                Err(error) => progress.errors.push(format!("{}: {error}", resource.id)),
            }
        }
        progress.scope.insert(EXCLUDED.into(), json!(excluded));
        progress
    }

    async fn one(
        &self,
        graph: &Graph,
        instance: &Value,
        resource: &Resource,
        order: usize,
        progress: &mut Progress,
    ) -> Result<Resolved, ClusterError> {
        for condition in &resource.include_when {
            match condition.holds(&progress.scope) {
                Ok(true) => {}
                Ok(false) => return Ok(Resolved::Excluded),
                Err(why) => return Ok(Resolved::Waiting(why)),
            }
        }
        let manifests = match manifests(resource, &progress.scope) {
            Ok(manifests) => manifests,
            Err(why) => return Ok(Resolved::Waiting(why)),
        };
        if resource.selects {
            return self.selected(instance, resource, manifests).await;
        }
        if resource.external {
            return self.external(instance, resource, manifests).await;
        }
        let (total, mut live) = (manifests.len(), Vec::new());
        for (index, mut manifest) in manifests.into_iter().enumerate() {
            mark(&mut manifest, graph, instance, resource, order);
            if !resource.for_each.is_empty() {
                set_label(&mut manifest, label::COLLECTION_INDEX, &index.to_string());
                set_label(&mut manifest, label::COLLECTION_SIZE, &total.to_string());
            }
            live.push(self.apply(instance, manifest).await?);
        }
        let ready = live.iter().find_map(|object| unready(resource, instance, object));
        if let Some(why) = ready {
            return Ok(Resolved::Waiting(why));
        }
        Ok(Resolved::Ready(match resource.for_each.is_empty() {
            true => live.into_iter().next().unwrap_or_default(),
            false => Value::Array(live),
        }))
    }

    async fn external(
        &self,
        instance: &Value,
        resource: &Resource,
        manifests: Vec<Value>,
    ) -> Result<Resolved, ClusterError> {
        let Some(manifest) = manifests.into_iter().next() else { return Ok(Resolved::Ready(Value::Null)) };
        let identity = self.identity(instance, &manifest).await?;
        match self.cluster.get(&identity).await? {
            None => Ok(Resolved::Waiting(format!("{identity} does not exist"))),
            Some(object) => match unready(resource, instance, &object) {
                Some(why) => Ok(Resolved::Waiting(why)),
                None => Ok(Resolved::Ready(object)),
            },
        }
    }

    /// Reads the objects that labels select, in the order of their names.
    async fn selected(
        &self,
        instance: &Value,
        resource: &Resource,
        manifests: Vec<Value>,
    ) -> Result<Resolved, ClusterError> {
        let Some(manifest) = manifests.into_iter().next() else { return Ok(Resolved::Ready(json!([]))) };
        let kind = self.cluster.kind(&resource.api_version, &resource.kind).await?;
        let own = instance["metadata"]["namespace"].as_str().unwrap_or("default");
        let namespace = manifest["metadata"]["namespace"].as_str().unwrap_or(own);
        let namespace = kind.namespaced().then_some(namespace);
        let selector = match selector(&manifest["metadata"]["selector"]) {
            Ok(selector) => selector,
            Err(why) => return Ok(Resolved::Waiting(why)),
        };
        let found = self.cluster.list(&kind, namespace, Some(selector)).await?;
        if found.len() > MAX_ITEMS {
            return Ok(Resolved::Waiting(format!("selects more than {MAX_ITEMS} objects")));
        }
        match found.iter().find_map(|object| unready(resource, instance, object)) {
            Some(why) => Ok(Resolved::Waiting(why)),
            None => Ok(Resolved::Ready(Value::Array(found))),
        }
    }

    async fn identity(&self, instance: &Value, manifest: &Value) -> Result<Identity, ClusterError> {
        let (api_version, kind) = kind_of(manifest);
        let kind = self.cluster.kind(api_version, kind).await?;
        let namespace = instance["metadata"]["namespace"].as_str().unwrap_or("default");
        Ok(Identity::of(&kind, manifest, namespace))
    }

    async fn apply(&self, instance: &Value, mut manifest: Value) -> Result<Value, ClusterError> {
        let identity = self.identity(instance, &manifest).await?;
        self.cluster.watch(&identity.kind);
        if let Some(namespace) = identity.namespace() {
            manifest["metadata"]["namespace"] = namespace.into();
        }
        let hash = digest::hash(&manifest);
        manifest["metadata"]["annotations"][label::HASH] = hash.into();
        let live = self.cluster.get(&identity).await?;
        if let Some(live) = &live {
            let owner = &live["metadata"]["labels"][label::INSTANCE_ID];
            if owner.is_string() && *owner != instance["metadata"]["uid"] {
                return Err(ClusterError::Refused(format!("{identity} belongs to another instance")));
            }
            if drift::has(live, &manifest) {
                return Ok(live.clone());
            }
        }
        self.cluster.apply(&identity, &manifest).await
    }
}

/// Renders a resource: once, or for every combination of its lists.
fn manifests(resource: &Resource, scope: &Map<String, Value>) -> Result<Vec<Value>, String> {
    let mut scopes = vec![scope.clone()];
    for (name, list) in &resource.for_each {
        let mut next = Vec::new();
        for scope in &scopes {
            let items = list.evaluate(scope)?;
            let items = items.as_array().ok_or_else(|| format!("forEach {name}: expected a list"))?;
            // Before the scopes are copied: a list of clients can have hundreds of thousands of items.
            if next.len() + items.len() > MAX_ITEMS {
                return Err(format!("forEach: more than {MAX_ITEMS} items"));
            }
            for item in items {
                let mut inner = scope.clone();
                inner.insert(name.clone(), item.clone());
                next.push(inner);
            }
        }
        scopes = next;
    }
    scopes.iter().map(|scope| resource.template.render(scope)).collect()
}

/// Returns a label selector in the form of requests.
fn selector(selector: &Value) -> Result<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut parts: Vec<String> = labels.map(|(name, value)| format!("{name}={}", text(value))).collect();
    for requirement in selector["matchExpressions"].as_array().into_iter().flatten() {
        let key = text(&requirement["key"]);
        let values: Vec<String> = requirement["values"].as_array().into_iter().flatten().map(text).collect();
        parts.push(match requirement["operator"].as_str().unwrap_or_default() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key,
            "DoesNotExist" => format!("!{key}"),
            other => {
                return Err(format!(
                    "selector: operator {other:?}, expected In, NotIn, Exists or DoesNotExist"
                ));
            }
        });
    }
    Ok(parts.join(","))
}

/// Says why an object is not ready.
fn unready(resource: &Resource, instance: &Value, object: &Value) -> Option<String> {
    let scope: Map<String, Value> = [
        (resource.id.clone(), object.clone()),
        ("each".to_owned(), object.clone()),
        ("schema".to_owned(), instance.clone()),
    ]
    .into_iter()
    .collect();
    resource.ready_when.iter().find_map(|condition| match condition.holds(&scope) {
        Ok(true) => None,
        Ok(false) => Some("is not ready".to_owned()),
        Err(why) => Some(format!("is not ready: {why}")),
    })
}

/// Adds the labels by which an object is found again.
fn mark(manifest: &mut Value, graph: &Graph, instance: &Value, resource: &Resource, order: usize) {
    let meta = &instance["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let labels = [
        (label::OWNED, "true".to_owned()),
        (label::INSTANCE_ID, text(&meta["uid"])),
        (label::INSTANCE_NAME, text(&meta["name"])),
        (label::INSTANCE_NAMESPACE, text(&meta["namespace"])),
        (label::INSTANCE_GROUP, graph.group.clone()),
        (label::INSTANCE_VERSION, graph.version.clone()),
        (label::INSTANCE_KIND, graph.kind.clone()),
        (label::NODE_ID, resource.id.clone()),
        (label::MANAGED_BY, "kro".to_owned()),
    ];
    for (name, value) in labels {
        set_label(manifest, name, &value);
    }
    if !manifest["metadata"]["annotations"].is_object() {
        manifest["metadata"]["annotations"] = json!({});
    }
    manifest["metadata"]["annotations"][label::ORDER] = order.to_string().into();
}
