//! A request as policies and webhooks see it: its attributes, and its objects in one version.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use super::converted::ConvertedObjects;
use super::policy::authorizer::{self, Checks};
use super::policy::matching::{self, Equivalents, Matched};
use super::{Operation, Review};
use crate::apply::ManagedFields;
use crate::cel::{Val, Variables};
use crate::codec;
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::metadata;
use crate::registry::Served;
use crate::rest::review::user_info;
use crate::rest::scale::scale_of;
use crate::schema::{FieldValidation, Target};
use crate::status::{Named, Status};

/// The input of policies and webhooks.
pub(super) struct VersionedAttributes<'a> {
    pub(super) review: &'a Review<'a>,
    /// Null for a delete.
    pub(super) object: Value,
    /// Null for a create.
    pub(super) old: Value,
    /// The namespace of the request. Null if it has none, or if the namespace does not exist.
    pub(super) namespace: Value,
    /// The version of the objects, if it differs from the request's.
    shown_as: Option<Arc<Served>>,
    checks: Checks,
    equivalents: Equivalents,
}

/// Why an object is not converted to another version.
#[derive(Debug)]
pub(super) enum Unconverted {
    /// The client has disconnected.
    GivenUp(Box<Status>),
    /// v1.34's message. The response depends on what the conversion was for.
    Failed(String),
}

impl Unconverted {
    /// Returns the error for the client, unless it has disconnected.
    pub(super) fn or(self, failed: impl FnOnce(String) -> Status) -> Status {
        match self {
            Self::GivenUp(status) => *status,
            Self::Failed(why) => failed(why),
        }
    }
}

impl From<Unconverted> for Status {
    fn from(unconverted: Unconverted) -> Self {
        unconverted.or(Self::internal)
    }
}

/// A group, version and kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gvk<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) kind: &'a str,
}

impl<'a> Gvk<'a> {
    fn of(kind: &'a Kind) -> Self {
        Self { group: &kind.group, version: &kind.version, kind: &kind.kind }
    }

    fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    fn shown(&self) -> Value {
        json!({"group": self.group, "version": self.version, "kind": self.kind})
    }

    /// Returns the schema of a kind that only exists as a subresource.
    fn target(&self) -> Option<Target> {
        let package = match self.group {
            "" => "core",
            "authentication.k8s.io" => "authentication",
            group => group,
        };
        Target::built_in(&format!("io.k8s.api.{package}.{}.{}", self.version, self.kind))
    }
}

fn resource(kind: &Kind) -> Value {
    json!({"group": kind.group, "version": kind.version, "resource": kind.plural})
}

/// Returns the kind of subresources that have their own.
fn own_kind(review: &Review<'_>) -> Option<Gvk<'static>> {
    let core = |kind| Gvk { group: "", version: "v1", kind };
    Some(match review.subresource? {
        Subresource::Scale => Gvk { group: "autoscaling", version: "v1", kind: "Scale" },
        Subresource::Eviction => Gvk { group: "policy", version: "v1", kind: "Eviction" },
        Subresource::Token => Gvk { group: "authentication.k8s.io", version: "v1", kind: "TokenRequest" },
        Subresource::Binding => core("Binding"),
        Subresource::Exec => core("PodExecOptions"),
        Subresource::Attach => core("PodAttachOptions"),
        Subresource::PortForward => core("PodPortForwardOptions"),
        Subresource::Proxy => core(match review.served.kind.kind.as_str() {
            "Service" => "ServiceProxyOptions",
            "Node" => "NodeProxyOptions",
            _ => "PodProxyOptions",
        }),
        Subresource::Status
        | Subresource::Finalize
        | Subresource::EphemeralContainers
        | Subresource::Resize
        | Subresource::Log
        | Subresource::Approval => return None,
    })
}

/// A namespace belongs to itself.
fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

/// The request of an `AdmissionReview`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionRequest<'a> {
    uid: &'a str,
    kind: Value,
    resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    sub_resource: &'a str,
    request_kind: Value,
    request_resource: Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_sub_resource: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    operation: &'static str,
    user_info: Value,
    object: &'a Value,
    old_object: &'a Value,
    dry_run: bool,
    options: Value,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AdmissionReview<'a> {
    kind: &'static str,
    api_version: &'a str,
    request: AdmissionRequest<'a>,
}

impl<'a> VersionedAttributes<'a> {
    pub(super) async fn new(
        review: &'a Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let attributes = Self::without_namespace(review, object, old);
        let namespace = match review.namespace {
            Some(namespace) => review.find("", "namespaces", namespace).await?.unwrap_or_default(),
            None => Value::Null,
        };
        Ok(Self { namespace, ..attributes })
    }

    /// The same without loading the namespace.
    pub(super) fn without_namespace(
        review: &'a Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Self {
        let fields = review.managed_fields();
        Self {
            review,
            object: whole(review, object, &fields),
            old: whole(review, old, &review.old_fields),
            namespace: Value::Null,
            shown_as: None,
            checks: Checks::new(review.server.authorizer.clone()),
            equivalents: Equivalents::default(),
        }
    }

    /// Fails if the request is in a namespace that does not exist.
    pub(super) fn check_namespace(&self) -> Result<(), Status> {
        match self.review.namespace {
            Some(namespace) if self.namespace.is_null() => {
                Err(Status::not_found(Named { group: "", resource: "namespaces" }, namespace))
            }
            _ => Ok(()),
        }
    }

    /// The same with the objects in another version.
    pub(super) async fn shown_as(&self, other: &Arc<Served>) -> Result<Self, Unconverted> {
        let served = self.review.served;
        Ok(Self {
            review: self.review,
            object: self.converted(&self.object, served, other, &self.review.converted).await?,
            old: self.converted(&self.old, served, other, &self.review.converted_old).await?,
            namespace: self.namespace.clone(),
            shown_as: Some(other.clone()),
            checks: self.checks.clone(),
            equivalents: self.equivalents.clone(),
        })
    }

    /// Converts an object from the shown version to the version of the request.
    pub(super) async fn as_requested(&self, object: Value) -> Result<Value, Unconverted> {
        match &self.shown_as {
            Some(other) => self.converted(&object, other, self.review.served, &self.review.converted).await,
            None => Ok(object),
        }
    }

    /// Converts an object between versions. Objects of subresources with their own kind are the same in all versions.
    async fn converted(
        &self,
        object: &Value,
        from: &Served,
        to: &Served,
        known: &Mutex<ConvertedObjects>,
    ) -> Result<Value, Unconverted> {
        if object.is_null() || own_kind(self.review).is_some() {
            return Ok(object.clone());
        }
        if !from.is_converted_by_webhook() {
            return Ok(from.converted(object, to));
        }
        let to = to.kind.api_version();
        if let Some(converted) = known.lock().find(object, &to) {
            return Ok(converted);
        }
        let converted = tokio::select! {
            biased;
            converted = self.review.server.conversions.between(from, object, &to) => converted,
            given_up = self.review.given_up() => return Err(Unconverted::GivenUp(Box::new(given_up))),
        };
        let converted = converted.map_err(|failed| Unconverted::Failed(failed.message))?;
        known.lock().add(object, &converted);
        Ok(converted)
    }

    /// Returns the schema of the objects. `None` for connect options, which have no schema.
    pub(super) fn target(&self) -> Option<Target> {
        match own_kind(self.review) {
            Some(own) => own.target(),
            None => Some(self.served().target.clone()),
        }
    }

    /// Drops what the kind of a patched custom resource does not know. Other objects were decoded before.
    pub(super) fn pruned(&self, object: Value) -> Result<Value, String> {
        let Some(target) = self.target().filter(|target| target.custom.is_some()) else { return Ok(object) };
        let decoded = target.decode_value(object, FieldValidation::Ignore);
        decoded.map(|decoded| decoded.object).map_err(|misfit| misfit.to_string())
    }

    /// Returns the schema that apply configurations are merged by. As in v1.34, kinds that are only served as subresources
    /// have none.
    pub(super) fn merge_target(&self) -> Option<Target> {
        let is_served = own_kind(self.review).is_none_or(|own| own.kind == "Binding");
        self.target().filter(|_| is_served)
    }

    /// Applies the defaults of the shown version.
    pub(super) fn default(&self, object: &mut Value) {
        if own_kind(self.review).is_none() {
            self.served().kind.strategy.default(object);
        }
    }

    fn served(&self) -> &Served {
        self.shown_as.as_deref().unwrap_or(self.review.served)
    }

    /// Returns the resource that rules match.
    pub(super) fn by_rules(&self, rules: &[Value], constraints: &Value) -> Option<Matched> {
        matching::by_rules(rules, constraints, self.review, self.name(), &self.equivalents)
    }

    /// Evaluates expressions, waiting for the authorization checks that they need.
    pub(super) async fn resolve_checks<T>(&self, evaluate: impl Fn() -> T) -> Result<T, Status> {
        self.checks.resolve_checks(self.review, evaluate).await
    }

    pub(super) fn checks(&self) -> &Checks {
        &self.checks
    }

    pub(super) fn operation(&self) -> &'static str {
        self.review.operation.name()
    }

    /// Returns the subresource, as in paths.
    pub(super) fn subresource(&self) -> &'static str {
        self.review.subresource.map_or("", |subresource| subresource.name())
    }

    /// Returns the name of the object. A generated name is only set after validation, and the objects of a collection have
    /// none here.
    pub(super) fn name(&self) -> &str {
        match self.review.name.as_str() {
            "" => metadata::of(&self.object).text("name"),
            name => name,
        }
    }

    /// Returns the namespace of the request; that of a namespace is the namespace itself. Empty if there is none.
    pub(super) fn namespace_name(&self) -> &str {
        match is_namespace(&self.review.served.kind) {
            true => self.name(),
            false => self.review.namespace.unwrap_or_default(),
        }
    }

    fn shown_kind(&self) -> Gvk<'_> {
        own_kind(self.review).unwrap_or_else(|| Gvk::of(&self.served().kind))
    }

    /// The API version and kind of the objects shown.
    pub(super) fn shown_type(&self) -> (String, String) {
        let shown = self.shown_kind();
        (shown.api_version(), shown.kind.to_owned())
    }

    fn requested_kind(&self) -> Gvk<'_> {
        own_kind(self.review).unwrap_or_else(|| Gvk::of(&self.review.served.kind))
    }

    pub(super) fn variables(&self, params: &Value) -> Variables {
        Variables::from([
            ("object", Val::of_json(&self.object)),
            ("oldObject", Val::of_json(&self.old)),
            ("params", Val::of_json(params)),
            ("namespaceObject", Val::of_json(&self.namespace)),
            ("request", Val::of_json(&self.request())),
            ("authorizer", authorizer::authorizer(self)),
            ("authorizer.requestResource", authorizer::request_resource(self)),
        ])
    }

    /// Returns the request for expressions. As in v1.34, empty texts are absent, and expressions that read them fail.
    fn request(&self) -> Value {
        let review = self.review;
        let mut user = json!({"username": review.user.name, "uid": review.user.uid});
        let mut request = json!({
            "kind": self.shown_kind().shown(),
            "resource": resource(&self.served().kind),
            "subResource": self.subresource(),
            "requestKind": self.requested_kind().shown(),
            "requestResource": resource(&review.served.kind),
            "requestSubResource": self.subresource(),
            "name": self.name(),
            "namespace": self.namespace_name(),
            "operation": self.operation(),
            "dryRun": review.dry_run,
            "options": review.options(),
        });
        for fields in [&mut user, &mut request].into_iter().filter_map(Value::as_object_mut) {
            fields.retain(|_, value| value.as_str() != Some(""));
        }
        user.set("groups", json!(review.user.groups));
        user.set("extra", json!(review.user.extra));
        request.set("userInfo", user);
        request
    }

    /// Returns the request as an `AdmissionReview` of this API version.
    pub(super) fn admission_review(&self, api_version: &str, uid: &str) -> Bytes {
        let review = self.review;
        let request = AdmissionRequest {
            uid,
            kind: self.shown_kind().shown(),
            resource: resource(&self.served().kind),
            sub_resource: self.subresource(),
            request_kind: self.requested_kind().shown(),
            request_resource: resource(&review.served.kind),
            request_sub_resource: self.subresource(),
            name: self.name(),
            namespace: self.namespace_name(),
            operation: self.operation(),
            user_info: user_info(review.user),
            object: &self.object,
            old_object: &self.old,
            dry_run: review.dry_run,
            options: review.options(),
        };
        codec::to_bytes(&AdmissionReview { kind: "AdmissionReview", api_version, request })
    }
}

/// Returns an object with its kind and managed fields. A scale is returned as a scale, not as the scaled object.
fn whole(review: &Review<'_>, object: Option<&Value>, managed: &ManagedFields) -> Value {
    let Some(object) = object else { return Value::Null };
    if review.subresource == Some(Subresource::Scale) {
        return scale_of(review.served, object).unwrap_or_default();
    }
    let mut object = object.clone();
    if !managed.is_empty() {
        managed.put_into(&mut object);
    }
    if let (Value::Object(fields), Some(own)) = (&mut object, own_kind(review)) {
        fields.insert("apiVersion".into(), own.api_version().into());
        fields.insert("kind".into(), own.kind.into());
    } else if let Value::Object(fields) = &mut object {
        let kind = &review.served.kind;
        fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
        fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
    }
    object
}

impl Operation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}
