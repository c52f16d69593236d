//! Resolves the resources of an instance, one after the other.

use serde_json::{Value, json};

use super::applyset;
use super::expression::Scope;
use super::instances::{Instances, Progress};
use super::label;
use super::parse::{Graph, MAX_ITEMS, Resource};
use crate::apply::cluster::{ClusterError, kind_of};
use crate::apply::identity::Identity;
use crate::apply::{drift, ownership, shape};
use crate::digest;
use crate::render::component::set_label;

/// The maximum number of attempts for a write with conflicts.
const ATTEMPTS: usize = 4;

/// The result of a resource.
enum Resolved {
    /// It exists and is ready.
    Ready(Value),
    /// It exists but is not ready, or cannot be created yet.
    Waiting(String),
    /// A condition excludes it.
    Excluded,
}

impl Instances {
    /// Applies what can be applied.
    pub(super) async fn resolve(&self, graph: &Graph, instance: &Value) -> Progress {
        let mut progress = Progress::default();
        progress.scope.set("schema", instance);
        for (order, resource) in graph.resources.iter().enumerate() {
            if resource.depends_on.iter().any(|id| progress.excluded.contains(id)) {
                progress.excluded.insert(resource.id.clone());
                continue;
            }
            if let Some(missing) = resource.depends_on.iter().find(|id| !progress.scope.has(id)) {
                progress.waiting.push(format!("{} waits for {missing}", resource.id));
                continue;
            }
            match self.one(graph, instance, resource, order, &progress.scope).await {
                Ok(Resolved::Ready(value)) => progress.complete(&resource.id, &value),
                Ok(Resolved::Waiting(why)) => progress.waiting.push(format!("{}: {why}", resource.id)),
                Ok(Resolved::Excluded) => drop(progress.excluded.insert(resource.id.clone())),
                Err(error) => progress.errors.push(format!("{}: {error}", resource.id)),
            }
        }
        progress
    }

    async fn one(
        &self,
        graph: &Graph,
        instance: &Value,
        resource: &Resource,
        order: usize,
        scope: &Scope,
    ) -> Result<Resolved, ClusterError> {
        for condition in &resource.include_when {
            match condition.holds(scope) {
                Ok(true) => {}
                Ok(false) => return Ok(Resolved::Excluded),
                Err(why) => return Ok(Resolved::Waiting(why)),
            }
        }
        let manifests = match manifests(resource, scope) {
            Ok(manifests) => manifests,
            Err(why) => return Ok(Resolved::Waiting(why)),
        };
        if resource.selects {
            return self.selected(instance, resource, scope, manifests).await;
        }
        if resource.external {
            return self.external(instance, resource, scope, manifests).await;
        }
        let (total, mut live) = (manifests.len(), Vec::new());
        for (index, mut manifest) in manifests.into_iter().enumerate() {
            shape::check(&manifest).map_err(ClusterError::Refused)?;
            mark(&mut manifest, graph, instance, resource, order);
            if !resource.for_each.is_empty() {
                set_label(&mut manifest, label::COLLECTION_INDEX, &index.to_string());
                set_label(&mut manifest, label::COLLECTION_SIZE, &total.to_string());
            }
            live.push(self.apply(instance, manifest).await?);
        }
        let ready = live.iter().find_map(|object| unready(resource, scope, object));
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
        scope: &Scope,
        manifests: Vec<Value>,
    ) -> Result<Resolved, ClusterError> {
        let Some(manifest) = manifests.into_iter().next() else { return Ok(Resolved::Ready(Value::Null)) };
        let identity = self.identity(instance, &manifest).await?;
        match self.cluster.get(&identity).await? {
            None => Ok(Resolved::Waiting(format!("{identity} does not exist"))),
            Some(object) => match unready(resource, scope, &object) {
                Some(why) => Ok(Resolved::Waiting(why)),
                None => Ok(Resolved::Ready(object)),
            },
        }
    }

    /// Reads the objects that labels select, sorted by name.
    async fn selected(
        &self,
        instance: &Value,
        resource: &Resource,
        scope: &Scope,
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
        match found.iter().find_map(|object| unready(resource, scope, object)) {
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

    /// Writes an object if it differs from the desired one. An object that has changed or been created since it was
    /// read is checked again, because it may have another owner now.
    async fn apply(&self, instance: &Value, mut manifest: Value) -> Result<Value, ClusterError> {
        let identity = self.identity(instance, &manifest).await?;
        self.cluster.watch(&identity.kind);
        if let Some(namespace) = identity.namespace() {
            manifest["metadata"]["namespace"] = namespace.into();
        }
        let hash = digest::hash(&manifest);
        manifest["metadata"]["annotations"][label::HASH] = hash.into();
        let mut written = self.apply_once(instance, &identity, &manifest).await;
        for _ in 1..ATTEMPTS {
            if !written.as_ref().is_err_and(ClusterError::is_conflict) {
                break;
            }
            written = self.apply_once(instance, &identity, &manifest).await;
        }
        written
    }

    async fn apply_once(
        &self,
        instance: &Value,
        identity: &Identity,
        manifest: &Value,
    ) -> Result<Value, ClusterError> {
        let Some(live) = self.cluster.get(identity).await? else {
            return self.cluster.create(identity, manifest).await;
        };
        if let Some(owner) = owner(&live, instance) {
            return Err(ClusterError::Refused(format!("{identity} belongs to {owner}")));
        }
        match drift::has(&live, manifest) {
            true => Ok(live),
            false => self.cluster.apply_to(identity, &live, manifest.clone()).await,
        }
    }
}

/// Returns another owner of a live object. Objects without an owner are adopted, as in kro.
fn owner(live: &Value, instance: &Value) -> Option<String> {
    let meta = &live["metadata"];
    let label = |name: &str| meta["labels"][name].as_str().filter(|value| !value.is_empty());
    if let Some(id) = label(label::INSTANCE_ID) {
        let own = instance["metadata"]["uid"] == id;
        return (!own).then(|| "another instance".to_owned());
    }
    if let Some(set) = label(label::PART_OF) {
        return Some(format!("the ApplySet {set}"));
    }
    if let Some(application) = ownership::owner(live) {
        return Some(format!("the Application {application}"));
    }
    if let Some(manager) = label(label::MANAGED_BY).filter(|manager| *manager != "kro") {
        return Some(manager.to_owned());
    }
    let mut owners = meta["ownerReferences"].as_array().into_iter().flatten();
    let controller = owners.find(|owner| owner["controller"] == true)?;
    let text = |field: &str| controller[field].as_str().unwrap_or_default();
    Some(format!("{} {}", text("kind"), text("name")))
}

impl Progress {
    /// Records a resource that exists and is ready.
    fn complete(&mut self, id: &str, value: &Value) {
        self.scope.set(id, value);
        let objects = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let uids = objects.iter().filter_map(|object| object["metadata"]["uid"].as_str());
        self.made.insert(id.to_owned(), uids.map(str::to_owned).collect());
    }
}

/// Renders a resource: once, or for every combination of its lists.
fn manifests(resource: &Resource, scope: &Scope) -> Result<Vec<Value>, String> {
    let mut scopes = vec![scope.clone()];
    for (name, list) in &resource.for_each {
        let mut next = Vec::new();
        for scope in &scopes {
            let items = list.evaluate(scope)?;
            let items = items.as_array().ok_or_else(|| format!("forEach {name}: expected a list"))?;
            if next.len() + items.len() > MAX_ITEMS {
                return Err(format!("forEach: more than {MAX_ITEMS} items"));
            }
            next.extend(items.iter().map(|item| scope.with(name, item)));
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

/// Returns why an object is not ready.
fn unready(resource: &Resource, scope: &Scope, object: &Value) -> Option<String> {
    if resource.ready_when.is_empty() {
        return None;
    }
    let scope = scope.only("schema").with(&resource.id, object).with("each", object);
    resource.ready_when.iter().find_map(|condition| match condition.holds(&scope) {
        Ok(true) => None,
        Ok(false) => Some("is not ready".to_owned()),
        Err(why) => Some(format!("is not ready: {why}")),
    })
}

/// Adds the labels that identify an object.
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
        (label::PART_OF, applyset::id(graph, instance)),
    ];
    for (name, value) in labels {
        set_label(manifest, name, &value);
    }
    if !manifest["metadata"]["annotations"].is_object() {
        manifest["metadata"]["annotations"] = json!({});
    }
    manifest["metadata"]["annotations"][label::ORDER] = order.to_string().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copying the shared scope for each item would take gigabytes and minutes.
    #[test]
    fn items_of_a_collection_share_what_they_see() {
        let graph = json!({"metadata": {"name": "shelf"}, "spec": {
            "schema": {"apiVersion": "v1alpha1", "kind": "Shelf", "spec": {"names": "[]string", "rest": "[]integer"}},
            "resources": [{"id": "book", "forEach": [{"name": "${schema.spec.names}"}], "template": {
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "${schema.metadata.name}-${name}"},
                "data": {"first": "${string(schema.spec.rest[0])}", "name": "${name}"}}}]}});
        let graph = Graph::parse(&graph).unwrap();
        let names: Vec<String> = (0..MAX_ITEMS).map(|number| format!("n{number}")).collect();
        let rest: Vec<usize> = (0..200_000).collect();
        let instance = json!({"metadata": {"name": "top"}, "spec": {"names": names, "rest": rest}});
        let made = manifests(&graph.resources[0], &Scope::default().with("schema", &instance)).unwrap();
        assert_eq!(made.len(), MAX_ITEMS);
        assert_eq!(made[7]["metadata"]["name"], "top-n7");
    }
}
