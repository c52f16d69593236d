//! The endpoints of kinds, as v1.34 documents them: custom kinds differ slightly from built-in ones.

use std::sync::Arc;

use crate::discovery::foreign_kind;
use crate::kind::{Kind, Subresource, Verb};
use crate::registry::Served;

use super::custom;
use super::endpoint::{Body, Content, Endpoint, Operation, OperationTarget};
use super::names::{capitalized, version_id, version_tag, with_article};
use super::parameters::{self, PRETTY, Parameter};
use super::schemas::{META, subresource_schema};

/// The media types of objects.
const FORMS: &[&str] = &["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const CUSTOM_FORMS: &[&str] = &["application/json", "application/yaml"];
const LOG_FORMS: &[&str] =
    &["text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"];
const LIST_FORMS: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
];
const PATCH_FORMS: &[&str] = &[
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];
/// Custom kinds do not support strategic merge patches.
const CUSTOM_PATCH_FORMS: &[&str] =
    &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"];
const ANY_FORM: &[&str] = &["*/*"];

/// The media types of discovery.
pub(super) const DISCOVERED: &[&str] = FORMS;

/// Returns the endpoints of the kinds in a group version.
pub(super) fn of(kinds: &[Arc<Served>]) -> Vec<Endpoint> {
    let mut endpoints = Vec::new();
    if let Some(first) = kinds.iter().find(|served| served.kind.custom.is_none()) {
        endpoints.push(resources(&first.kind));
    }
    for served in kinds {
        Resource { kind: &served.kind, part: None }.add_to(&mut endpoints);
    }
    endpoints
}

fn root(kind: &Kind) -> String {
    if kind.group.is_empty() {
        format!("/api/{}", kind.version)
    } else {
        format!("/apis/{}/{}", kind.group, kind.version)
    }
}

fn resources(kind: &Kind) -> Endpoint {
    let operation = Operation {
        method: "get",
        id: format!("get{}APIResources", version_id(&kind.group, &kind.version)),
        description: "get available resources".into(),
        tag: version_tag(&kind.group, &kind.version),
        consumes: DISCOVERED,
        produces: DISCOVERED,
        parameters: Vec::new(),
        body: None,
        codes: &[200],
        answer: Content::Object(format!("{META}.APIResourceList")),
        about: None,
    };
    Endpoint { path: format!("{}/", root(kind)), operations: vec![operation] }
}

/// A kind's objects or one of their subresources.
struct Resource<'k> {
    kind: &'k Kind,
    part: Option<Subresource>,
}

/// The name and location of an operation; the rest follows from its action.
struct Done<'a> {
    path: &'a str,
    method: &'static str,
    action: &'static str,
    id: String,
    description: String,
}

impl Resource<'_> {
    fn add_to(&self, endpoints: &mut Vec<Endpoint>) {
        let kind = self.kind;
        let is_watched = kind.verbs.contains(&Verb::Watch) && kind.custom.is_none();
        endpoints.push(self.collection());
        endpoints.push(self.object());
        if kind.is_namespaced() && kind.verbs.contains(&Verb::List) {
            endpoints.push(self.all_namespaces());
        }
        if is_watched {
            endpoints.extend(self.watches());
        }
        for part in &kind.subresources {
            endpoints.extend(Resource { kind, part: Some(*part) }.part(*part));
        }
        endpoints.retain(|endpoint| !endpoint.operations.is_empty());
    }

    fn is_custom(&self) -> bool {
        self.kind.custom.is_some()
    }

    fn collection_path(&self, below: &str) -> String {
        let namespace = if self.kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
        format!("{}{below}{namespace}/{}", root(self.kind), self.kind.plural)
    }

    fn object_path(&self) -> String {
        let part = self.part.map(|part| format!("/{}", part.name())).unwrap_or_default();
        format!("{}/{{name}}{part}", self.collection_path(""))
    }

    fn collection(&self) -> Endpoint {
        let path = self.collection_path("");
        let has = |verb| self.kind.verbs.contains(&verb);
        let mut operations = Vec::new();
        if has(Verb::List) {
            operations.push(self.listing(&path, self.id("list", "", "")));
        }
        if has(Verb::Create) {
            operations.push(self.creating(&path));
        }
        if has(Verb::DeleteCollection) {
            operations.push(self.deleting_collection(&path));
        }
        Endpoint { path, operations }
    }

    fn all_namespaces(&self) -> Endpoint {
        let path = format!("{}/{}", root(self.kind), self.kind.plural);
        let id = format!("list{}{}ForAllNamespaces", self.version_id(), self.kind.kind);
        let listing = self.listing(&path, id);
        Endpoint { path, operations: vec![listing] }
    }

    fn object(&self) -> Endpoint {
        let path = self.object_path();
        let has = |verb| self.kind.verbs.contains(&verb);
        let mut operations = Vec::new();
        if has(Verb::Get) {
            operations.push(self.reading(&path));
        }
        if has(Verb::Update) {
            operations.push(self.replacing(&path));
        }
        if has(Verb::Patch) {
            operations.push(self.patching(&path));
        }
        if has(Verb::Delete) {
            operations.push(self.deleting(&path));
        }
        Endpoint { path, operations }
    }

    /// Returns the deprecated paths that watch without a query parameter.
    fn watches(&self) -> Vec<Endpoint> {
        let Kind { kind: name, plural, .. } = self.kind;
        let list = self.collection_path("/watch");
        let object = format!("{list}/{{name}}");
        let of_list = || {
            format!(
                "watch individual changes to a list of {name}. deprecated: use the 'watch' parameter with a list operation instead."
            )
        };
        let of_object = format!(
            "watch changes to an object of kind {name}. deprecated: use the 'watch' parameter with a list operation instead, filtered to a single item with the 'fieldSelector' parameter."
        );
        let mut watches = vec![
            self.watching(list, "watchlist", self.id("watch", "", "List"), of_list()),
            self.watching(object, "watch", self.id("watch", "", ""), of_object),
        ];
        if self.kind.is_namespaced() {
            let id = format!("watch{}{name}ListForAllNamespaces", self.version_id());
            watches.push(self.watching(
                format!("{}/watch/{plural}", root(self.kind)),
                "watchlist",
                id,
                of_list(),
            ));
        }
        watches
    }

    fn watching(&self, path: String, action: &'static str, id: String, description: String) -> Endpoint {
        let mut operation = self.operation(Done { path: &path, method: "get", action, id, description });
        operation.parameters.extend(parameters::listing());
        operation.produces = LIST_FORMS;
        operation.answer = Content::Object(format!("{META}.WatchEvent"));
        Endpoint { path, operations: vec![operation] }
    }

    /// Returns the endpoints of a subresource: one, except for proxies, which have paths below.
    fn part(&self, part: Subresource) -> Vec<Endpoint> {
        let path = self.object_path();
        let operations = match part {
            Subresource::Binding | Subresource::Eviction | Subresource::Token => vec![self.creating(&path)],
            Subresource::Finalize => vec![self.replacing(&path)],
            Subresource::Log => vec![self.reading_log(&path)],
            Subresource::Proxy => {
                return vec![
                    self.proxied(path.clone(), ""),
                    self.proxied(format!("{path}/{{path}}"), "WithPath"),
                ];
            }
            part if part.is_connection() => {
                ["get", "post"].map(|method| self.connecting(&path, method, "")).into()
            }
            _ => vec![self.reading(&path), self.replacing(&path), self.patching(&path)],
        };
        vec![Endpoint { path, operations }]
    }

    fn proxied(&self, path: String, suffix: &str) -> Endpoint {
        let methods = ["get", "put", "post", "delete", "options", "head", "patch"];
        let operations = methods.map(|method| self.connecting(&path, method, suffix)).into();
        Endpoint { path, operations }
    }

    /// Builds an operation that connects to something other than an object.
    fn connecting(&self, path: &str, method: &'static str, suffix: &str) -> Operation {
        let description =
            format!("connect {} requests to {}", method.to_uppercase(), self.part_of(&self.kind.kind));
        let id = self.id("connect", &capitalized(method), suffix);
        let mut operation = self.operation(Done { path, method, action: "connect", id, description });
        operation.parameters.retain(|parameter| *parameter != PRETTY);
        operation.parameters.extend(self.part.map(parameters::connecting).into_iter().flatten());
        operation.produces = ANY_FORM;
        operation.answer = Content::Text;
        operation
    }

    fn reading_log(&self, path: &str) -> Operation {
        let mut operation = self.reading(path);
        operation.parameters.extend(parameters::connecting(Subresource::Log));
        operation.produces = LOG_FORMS;
        operation.answer = Content::Text;
        operation
    }

    fn listing(&self, path: &str, id: String) -> Operation {
        let is_watched = self.kind.verbs.contains(&Verb::Watch) && !self.is_custom();
        let or_watch = if is_watched { " or watch" } else { "" };
        let description = format!("list{or_watch} objects of kind {}", self.kind.kind);
        let mut operation = self.operation(Done { path, method: "get", action: "list", id, description });
        operation.parameters.extend(parameters::listing());
        operation.produces = if self.is_custom() { CUSTOM_FORMS } else { LIST_FORMS };
        operation.answer = Content::Object(custom::list_name(self.kind));
        operation
    }

    fn creating(&self, path: &str) -> Operation {
        let description = format!("create {}", self.part_of(&with_article(&self.kind.kind)));
        let id = self.id("create", "", "");
        let mut operation = self.operation(Done { path, method: "post", action: "post", id, description });
        operation.parameters.extend(parameters::writing());
        operation.body = Some(Body { schema: self.schema().into(), required: true });
        operation.codes = &[200, 201, 202];
        operation
    }

    fn reading(&self, path: &str) -> Operation {
        let description = format!("read {}", self.part_of(&self.specified()));
        let id = self.id("read", "", "");
        let mut operation = self.operation(Done { path, method: "get", action: "get", id, description });
        if self.is_custom() {
            operation.parameters.extend(parameters::reading());
        }
        operation
    }

    fn replacing(&self, path: &str) -> Operation {
        let description = format!("replace {}", self.part_of(&self.specified()));
        let id = self.id("replace", "", "");
        let mut operation = self.operation(Done { path, method: "put", action: "put", id, description });
        operation.parameters.extend(parameters::writing());
        operation.body = Some(Body { schema: self.schema().into(), required: true });
        operation.codes = &[200, 201];
        operation
    }

    fn patching(&self, path: &str) -> Operation {
        let description = format!("partially update {}", self.part_of(&self.specified()));
        let id = self.id("patch", "", "");
        let mut operation = self.operation(Done { path, method: "patch", action: "patch", id, description });
        operation.parameters.extend(parameters::patching());
        operation.consumes = if self.is_custom() { CUSTOM_PATCH_FORMS } else { PATCH_FORMS };
        operation.body = Some(Body { schema: format!("{META}.Patch"), required: true });
        operation.codes = if self.is_custom() { &[200] } else { &[200, 201] };
        operation
    }

    /// Builds the delete operation. Some kinds return the deleted object, the others a status.
    fn deleting(&self, path: &str) -> Operation {
        let description = format!("delete {}", with_article(&self.kind.kind));
        let id = self.id("delete", "", "");
        let mut operation =
            self.operation(Done { path, method: "delete", action: "delete", id, description });
        operation.parameters.extend(parameters::deleting());
        operation.body = Some(Body { schema: format!("{META}.DeleteOptions"), required: false });
        operation.codes = &[200, 202];
        if !self.kind.semantics.deletion.documents_object || self.is_custom() {
            operation.answer = Content::Object(format!("{META}.Status"));
        }
        operation
    }

    fn deleting_collection(&self, path: &str) -> Operation {
        let description = format!("delete collection of {}", self.kind.kind);
        let id = self.id("delete", "Collection", "");
        let done = Done { path, method: "delete", action: "deletecollection", id, description };
        let mut operation = self.operation(done);
        if self.is_custom() {
            operation.parameters.extend(parameters::listing());
        } else {
            operation.parameters.extend(parameters::deleting_collection());
            operation.body = Some(Body { schema: format!("{META}.DeleteOptions"), required: false });
        }
        operation.answer = Content::Object(format!("{META}.Status"));
        operation
    }

    /// Builds an operation without a body that returns an object.
    fn operation(&self, done: Done<'_>) -> Operation {
        let Done { path, method, action, id, description } = done;
        let (group, version, kind) = self.group_version_kind();
        let mut parameters: Vec<Parameter> = parameters::of_path(path, kind);
        parameters.push(PRETTY);
        Operation {
            method,
            id,
            description,
            tag: version_tag(&self.kind.group, &self.kind.version),
            consumes: if self.is_custom() { CUSTOM_FORMS } else { ANY_FORM },
            produces: if self.is_custom() { CUSTOM_FORMS } else { FORMS },
            parameters,
            body: None,
            codes: &[200],
            answer: Content::Object(self.schema().into()),
            about: Some(OperationTarget {
                action,
                group: group.into(),
                version: version.into(),
                kind: kind.into(),
            }),
        }
    }

    fn group_version_kind(&self) -> (&str, &str, &str) {
        let own = (&*self.kind.group, &*self.kind.version);
        match self.part.filter(|_| !self.is_custom()).and_then(|part| foreign_kind(self.kind, part)) {
            None => (own.0, own.1, &self.kind.kind),
            Some((_, "", kind)) => (own.0, own.1, kind),
            Some(foreign) => foreign,
        }
    }

    fn schema(&self) -> &str {
        self.part.and_then(subresource_schema).unwrap_or(&self.kind.schema)
    }

    fn specified(&self) -> String {
        format!("the specified {}", self.kind.kind)
    }

    /// Returns `a Deployment`, `status of the specified Deployment`.
    fn part_of(&self, object: &str) -> String {
        match self.part {
            None => object.to_owned(),
            Some(part) => format!("{} of {object}", part.name()),
        }
    }

    fn version_id(&self) -> String {
        version_id(&self.kind.group, &self.kind.version)
    }

    /// Returns `readAppsV1NamespacedDeploymentStatus`.
    fn id(&self, verb: &str, what: &str, suffix: &str) -> String {
        let scope = if self.kind.is_namespaced() { "Namespaced" } else { "" };
        let part = self.part.map(|part| capitalized(part.name())).unwrap_or_default();
        format!("{verb}{}{what}{scope}{}{part}{suffix}", self.version_id(), self.kind.kind)
    }
}
