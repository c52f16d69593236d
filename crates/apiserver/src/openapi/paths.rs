//! The endpoints of a group version.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::discovery::foreign_kind;
use crate::kind::{Kind, Subresource, Verb};
use crate::registry::Served;

use super::custom;
use super::parameters;
use super::schemas::{Dialect, META, subresource_schema};

const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
const STREAM: &str = "application/json;stream=watch";
const PATCH_TYPES: [&str; 4] = [
    "application/apply-patch+yaml",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
];

/// Custom kinds know no strategic merge.
fn patch_types(kind: &Kind) -> &'static [&'static str] {
    if kind.custom.is_some() { &PATCH_TYPES[..3] } else { &PATCH_TYPES }
}

pub(super) fn of(kinds: &[Arc<Served>]) -> Map<String, Value> {
    let mut paths = Map::new();
    if let Some(first) = kinds.first() {
        paths.insert(format!("{}/", root(&first.kind)), resources(&first.kind));
    }
    for served in kinds {
        let kind = &served.kind;
        add_collections(&mut paths, kind);
        let object = Endpoint { kind, part: None };
        paths.insert(object.path(), object.object_item());
        for part in &kind.subresources {
            let endpoint = Endpoint { kind, part: Some(*part) };
            paths.insert(endpoint.path(), endpoint.part_item(*part));
        }
    }
    paths
}

fn root(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}

fn resources(kind: &Kind) -> Value {
    json!({"get": {
        "description": "get available resources",
        "operationId": format!("get{}APIResources", group_version_id(kind)),
        "tags": [tag(kind)],
        "responses": responses(&[200], &format!("{META}.APIResourceList"), &[]),
    }})
}

fn add_collections(paths: &mut Map<String, Value>, kind: &Kind) {
    let collection = Endpoint { kind, part: None };
    let (root, plural) = (root(kind), &kind.plural);
    if !kind.is_namespaced() {
        paths.insert(format!("{root}/{plural}"), collection.collection_item());
        return;
    }
    paths.insert(format!("{root}/namespaces/{{namespace}}/{plural}"), collection.collection_item());
    if kind.verbs.contains(&Verb::List) {
        let id = format!("list{}{}ForAllNamespaces", group_version_id(kind), kind.kind);
        let mut item = Map::new();
        item.insert("get".into(), collection.listing(id));
        item.insert("parameters".into(), parameters::of_path(&kind.kind, false, false));
        paths.insert(format!("{root}/{plural}"), Value::Object(item));
    }
}

/// An object's endpoint or that of one of its parts.
struct Endpoint<'k> {
    kind: &'k Kind,
    part: Option<Subresource>,
}

impl Endpoint<'_> {
    fn path(&self) -> String {
        let Kind { plural, .. } = self.kind;
        let namespace = if self.kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
        let part = self.part.map(|part| format!("/{}", part.name())).unwrap_or_default();
        format!("{}{namespace}/{plural}/{{name}}{part}", root(self.kind))
    }

    fn collection_item(&self) -> Value {
        let kind = self.kind;
        let mut item = Map::new();
        if kind.verbs.contains(&Verb::List) {
            item.insert("get".into(), self.listing(self.id("list", "")));
        }
        if kind.verbs.contains(&Verb::Create) {
            item.insert("post".into(), self.creating());
        }
        if kind.verbs.contains(&Verb::DeleteCollection) {
            let mut operation =
                self.operation("deletecollection", format!("delete collection of {}", kind.kind));
            operation.insert("operationId".into(), self.id("delete", "Collection").into());
            operation.insert("parameters".into(), parameters::deleting_collection());
            operation.insert("requestBody".into(), body(&["*/*"], &format!("{META}.DeleteOptions"), false));
            operation.insert("responses".into(), responses(&[200], &format!("{META}.Status"), &[]));
            item.insert("delete".into(), Value::Object(operation));
        }
        item.insert("parameters".into(), parameters::of_path(&kind.kind, false, kind.is_namespaced()));
        Value::Object(item)
    }

    fn object_item(&self) -> Value {
        let kind = self.kind;
        let mut item = Map::new();
        let has = |verb| kind.verbs.contains(&verb);
        if has(Verb::Get) {
            item.insert("get".into(), self.reading());
        }
        if has(Verb::Update) {
            item.insert("put".into(), self.replacing());
        }
        if has(Verb::Patch) {
            item.insert("patch".into(), self.patching());
        }
        if has(Verb::Delete) {
            item.insert("delete".into(), self.deleting());
        }
        item.insert("parameters".into(), parameters::of_path(&kind.kind, true, kind.is_namespaced()));
        Value::Object(item)
    }

    fn part_item(&self, part: Subresource) -> Value {
        let mut item = Map::new();
        match part {
            Subresource::Binding | Subresource::Eviction | Subresource::Token => {
                _ = item.insert("post".into(), self.creating());
            }
            Subresource::Finalize => _ = item.insert("put".into(), self.replacing()),
            part if part.is_connection() => {
                for verb in part.verbs() {
                    let (method, operation) = self.connecting(*verb, part);
                    item.insert(method.into(), operation);
                }
            }
            _ => {
                item.insert("get".into(), self.reading());
                item.insert("put".into(), self.replacing());
                item.insert("patch".into(), self.patching());
            }
        }
        item.insert(
            "parameters".into(),
            parameters::of_path(self.shown_kind(), true, self.kind.is_namespaced()),
        );
        Value::Object(item)
    }

    /// A method that leads to something that is no object.
    fn connecting(&self, verb: Verb, part: Subresource) -> (&'static str, Value) {
        let method = match verb {
            Verb::Create => "post",
            Verb::Update => "put",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            _ => "get",
        };
        let (action, verb) = if part == Subresource::Log { ("get", "read") } else { ("connect", "connect") };
        let text = json!({"description": "OK", "content": {"*/*": {"schema": {"type": "string"}}}});
        let description = format!("{verb} {} requests to {}", method.to_uppercase(), self.phrase("the"));
        let mut operation = self.operation(action, description);
        let id = match part {
            Subresource::Log => self.id(verb, ""),
            _ => self.id(&format!("connect{}", capitalized(method)), ""),
        };
        operation.insert("operationId".into(), id.into());
        operation.insert("responses".into(), json!({"200": text, "401": {"description": "Unauthorized"}}));
        (method, Value::Object(operation))
    }

    fn listing(&self, id: String) -> Value {
        let list = custom::list_name(self.kind);
        let mut operation =
            self.operation("list", format!("list or watch objects of kind {}", self.kind.kind));
        operation.insert("operationId".into(), id.into());
        operation.insert("parameters".into(), parameters::listing());
        operation.insert("responses".into(), responses(&[200], &list, &[STREAM]));
        Value::Object(operation)
    }

    fn creating(&self) -> Value {
        let mut operation = self.operation("post", format!("create {}", self.phrase("a")));
        operation.insert("operationId".into(), self.id("create", "").into());
        operation.insert("parameters".into(), parameters::writing());
        operation.insert("requestBody".into(), body(&["*/*"], self.schema(), true));
        operation.insert("responses".into(), responses(&[200, 201, 202], self.schema(), &[]));
        Value::Object(operation)
    }

    fn reading(&self) -> Value {
        let mut operation = self.operation("get", format!("read {}", self.phrase("the specified")));
        operation.insert("operationId".into(), self.id("read", "").into());
        operation.insert("responses".into(), responses(&[200], self.schema(), &[]));
        Value::Object(operation)
    }

    fn replacing(&self) -> Value {
        let mut operation = self.operation("put", format!("replace {}", self.phrase("the specified")));
        operation.insert("operationId".into(), self.id("replace", "").into());
        operation.insert("parameters".into(), parameters::writing());
        operation.insert("requestBody".into(), body(&["*/*"], self.schema(), true));
        operation.insert("responses".into(), responses(&[200, 201], self.schema(), &[]));
        Value::Object(operation)
    }

    fn patching(&self) -> Value {
        let mut operation =
            self.operation("patch", format!("partially update {}", self.phrase("the specified")));
        operation.insert("operationId".into(), self.id("patch", "").into());
        operation.insert("parameters".into(), parameters::patching());
        operation.insert("requestBody".into(), body(patch_types(self.kind), &format!("{META}.Patch"), true));
        operation.insert("responses".into(), responses(&[200, 201], self.schema(), &[]));
        Value::Object(operation)
    }

    fn deleting(&self) -> Value {
        let mut operation = self.operation("delete", format!("delete {}", self.phrase("a")));
        // Kinds with a lifecycle answer with the object, the others with a status.
        let answer = format!("{META}.Status");
        operation.insert("operationId".into(), self.id("delete", "").into());
        operation.insert("parameters".into(), parameters::deleting());
        operation.insert("requestBody".into(), body(&["*/*"], &format!("{META}.DeleteOptions"), false));
        operation.insert("responses".into(), responses(&[200, 202], &answer, &[]));
        Value::Object(operation)
    }

    fn operation(&self, action: &str, description: String) -> Map<String, Value> {
        let (group, version, kind) = self.group_version_kind();
        let mut operation = Map::new();
        operation.insert("description".into(), description.into());
        operation.insert("tags".into(), json!([tag(self.kind)]));
        operation.insert("x-kubernetes-action".into(), action.into());
        operation.insert(
            "x-kubernetes-group-version-kind".into(),
            json!({"group": group, "version": version, "kind": kind}),
        );
        operation
    }

    fn group_version_kind(&self) -> (&str, &str, &str) {
        let own = (&*self.kind.group, &*self.kind.version);
        match self.part.and_then(|part| foreign_kind(self.kind, part)) {
            None => (own.0, own.1, &self.kind.kind),
            Some((_, "", kind)) => (own.0, own.1, kind),
            Some(foreign) => foreign,
        }
    }

    fn schema(&self) -> &str {
        self.part.and_then(subresource_schema).unwrap_or(&self.kind.schema)
    }

    fn shown_kind(&self) -> &str {
        self.group_version_kind().2
    }

    /// `a Deployment`, `status of the specified Deployment`.
    fn phrase(&self, article: &str) -> String {
        match self.part {
            Some(Subresource::Binding | Subresource::Eviction) | None => {
                let kind = self.shown_kind();
                let article = if article == "a" && kind.starts_with(['A', 'E', 'I', 'O', 'U']) {
                    "an"
                } else {
                    article
                };
                format!("{article} {kind}")
            }
            Some(part) => format!("{} of {article} {}", part.name(), self.kind.kind),
        }
    }

    /// `readAppsV1NamespacedDeploymentStatus`.
    fn id(&self, verb: &str, what: &str) -> String {
        let scope = if self.kind.is_namespaced() { "Namespaced" } else { "" };
        let part = self.part.map(|part| capitalized(part.name())).unwrap_or_default();
        format!("{verb}{}{what}{scope}{}{part}", group_version_id(self.kind), self.kind.kind)
    }
}

/// `Core`, `Apps`, `RbacAuthorization`.
fn group_id(kind: &Kind) -> String {
    let group = if kind.group.is_empty() { "core" } else { kind.group.trim_end_matches(".k8s.io") };
    group.split('.').map(capitalized).collect()
}

fn group_version_id(kind: &Kind) -> String {
    format!("{}{}", group_id(kind), capitalized(&kind.version))
}

/// `core_v1`, `rbacAuthorization_v1`.
fn tag(kind: &Kind) -> String {
    let group = group_id(kind);
    let (first, rest) = group.split_at(1.min(group.len()));
    format!("{}{rest}_{}", first.to_lowercase(), kind.version)
}

fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

fn body(media_types: &[&str], schema: &str, required: bool) -> Value {
    let mut body = Map::new();
    body.insert("content".into(), content(media_types.iter().copied(), schema));
    if required {
        body.insert("required".into(), true.into());
    }
    Value::Object(body)
}

fn responses(codes: &[u16], schema: &str, more_types: &[&str]) -> Value {
    let described = |code: u16| match code {
        200 => "OK",
        201 => "Created",
        _ => "Accepted",
    };
    let media_types = || MEDIA_TYPES.iter().chain(more_types).copied();
    let answer =
        |code: u16| json!({"description": described(code), "content": content(media_types(), schema)});
    let mut responses: Map<String, Value> =
        codes.iter().map(|code| (code.to_string(), answer(*code))).collect();
    responses.insert("401".into(), json!({"description": "Unauthorized"}));
    Value::Object(responses)
}

fn content<'a>(media_types: impl Iterator<Item = &'a str>, schema: &str) -> Value {
    let schema = json!({"schema": Dialect::V3.reference(schema)});
    Value::Object(media_types.map(|media_type| (media_type.to_owned(), schema.clone())).collect())
}
