//! The scale subresource: `autoscaling/v1` Scale for any kind with replicas.

use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::update::{self, UpdatedObjectInfo};
use super::{Call, Outcome, apply as rest_apply, patch, respond};
use crate::body::Body;
use crate::custom::ScalePaths;
use crate::custom::scale;
use crate::decode;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kinds::selector;
use crate::metadata;
use crate::negotiate::Shape;
use crate::options::{OptionsOf, WriteOptions};
use crate::patch::PatchKind;
use crate::registry::Served;
use crate::schema::{FieldValidation, Target};
use crate::status::{Named, Status};
use crate::strategy::NameRule;
use crate::transform::{self, TableOptions};

const SCALE: &str = "io.k8s.api.autoscaling.v1.Scale";
const SCALES: Named<'static> = Named { group: "autoscaling", resource: "Scale" };
const NEGATIVE_REPLICAS: &str = "must be greater than or equal to 0";

fn target() -> Result<Target, Status> {
    Target::built_in(SCALE).ok_or_else(|| Status::internal("no schema of Scale"))
}

pub(crate) async fn get(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let record = call.shown(&call.record().await?).await?;
    let object = call.served.decode(&record)?;
    if let Some(paths) = custom_paths(call.served)
        && scale::nested_number(&object, &paths.spec).map_err(Status::unknown)?.is_none()
    {
        return Err(Status::internal(format_args!(
            "the spec replicas field {:?} does not exist",
            paths.written
        )));
    }
    respond(call, &object)
}

/// Responds with an object's scale in the shape that the client asked for.
fn respond(call: &Call<'_>, object: &Value) -> Result<Response<Body>, Status> {
    let scale = scale_of(call.served, object)?;
    if call.output.shape != Shape::Table {
        return Ok(respond::foreign(call, StatusCode::OK, scale));
    }
    let options = TableOptions::parse(call.query)?;
    let table = transform::scale_table(call.served, call.output, &options, scale, call.now);
    call.context.audit.response_object(&table);
    Ok(respond::document(StatusCode::OK, call.output, &table))
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Update)?;
    let mut scale = decode::document(call, &target()?, options.field_validation)?;
    metadata::normalize_namespace(&mut scale, call.namespace)?;
    update::check_name(&scale, name)?;
    let mut maker = Scaled { call, name, change: Change::To(scale) };
    apply(call, name, &options, &mut maker).await
}

pub(crate) async fn patch(call: &Call<'_>) -> Result<Response<Body>, Status> {
    if rest_apply::is_apply(call) {
        return apply_configuration(call).await;
    }
    let kind = patch::kind(call)?;
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Patch { apply: false })?;
    call.context.audit.request_patch(call.body);
    let change = Change::Patch { kind, validation: options.field_validation, target: target()? };
    let mut maker = Scaled { call, name, change };
    apply(call, name, &options, &mut maker).await
}

/// Applies a scale to the scaled object: sets its replicas on behalf of the scale's field manager.
async fn apply_configuration(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Patch { apply: true })?;
    call.context.audit.request_patch(call.body);
    let mut scale = rest_apply::configuration(call)?;
    crate::apply::check(&target()?, &scale).map_err(rest_apply::refusal)?;
    metadata::normalize_namespace(&mut scale, call.namespace)?;
    // Labels, owners and finalizers belong to the object: a scale only identifies it.
    let mut identity = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion"] {
        identity.restore(field, scale.at("metadata"));
    }
    let mut configuration = json!({
        "apiVersion": call.served.kind.api_version(),
        "kind": call.served.kind.kind,
        "metadata": identity,
    });
    if scale.at("spec").has("replicas") {
        set_replicas(call.served, &mut configuration, scale.at("spec").at("replicas").clone());
    }
    let mut maker = Scaled { call, name, change: Change::Apply { scale, configuration } };
    apply(call, name, &options, &mut maker).await
}

async fn apply(
    call: &Call<'_>,
    name: &str,
    options: &WriteOptions,
    maker: &mut Scaled<'_>,
) -> Result<Response<Body>, Status> {
    let object = match update::apply(call, name, options, maker).await?.0 {
        Outcome::Stored(record) => call.served.decode(&*call.shown(&record).await?)?,
        Outcome::Unstored(object) => object,
    };
    respond(call, &object)
}

/// Returns the replica paths of a custom resource.
fn custom_paths(served: &Served) -> Option<&ScalePaths> {
    served.kind.custom.as_deref()?.scale.as_ref()
}

/// Sets the replicas of an object to those of a scale that admission has changed.
pub(crate) fn write_back(
    served: &Served,
    name: &str,
    object: &mut Value,
    scale: &Value,
) -> Result<(), Status> {
    let replicas = scale.at("spec").count("replicas");
    if replicas < 0 {
        let mut errors = Errors::default();
        let path = Path::root("spec");
        errors.invalid(&path.child("replicas"), replicas, NEGATIVE_REPLICAS);
        return Err(Status::invalid(SCALES, name, &errors));
    }
    set_replicas(served, object, replicas);
    Ok(())
}

fn set_replicas(served: &Served, object: &mut Value, replicas: impl Into<Value>) {
    match custom_paths(served) {
        Some(paths) => scale::set_nested(object, &paths.spec, replicas),
        None => object.object_mut("spec").set("replicas", replicas),
    }
}

/// Returns an object's scale.
pub(crate) fn scale_of(served: &Served, object: &Value) -> Result<Value, Status> {
    let Some(paths) = custom_paths(served) else { return Ok(built_in_scale(object)) };
    let number = |path: &[String]| scale::nested_number(object, path).map_err(Status::unknown);
    let replicas = number(&paths.spec)?.unwrap_or(0);
    let mut status = json!({ "replicas": number(&paths.status)?.unwrap_or(0) });
    if let Some(path) = &paths.selector
        && let Some(selector) = scale::nested_text(object, path).map_err(Status::unknown)?
        && !selector.is_empty()
    {
        status.set("selector", selector);
    }
    let spec = if replicas == 0 { json!({}) } else { json!({ "replicas": replicas }) };
    Ok(shown(object, spec, status))
}

fn built_in_scale(object: &Value) -> Value {
    let mut spec = json!({});
    if object.at("spec").count("replicas") != 0 {
        spec.restore("replicas", object.at("spec"));
    }
    let mut status = json!({ "replicas": object.at("status").count("replicas") });
    let selector = shown_selector(object.at("spec").at("selector"));
    if !selector.is_empty() {
        status.set("selector", selector);
    }
    shown(object, spec, status)
}

fn shown(object: &Value, spec: Value, status: Value) -> Value {
    let mut meta = json!({});
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        meta.restore(field, metadata::of(object));
    }
    json!({ "kind": "Scale", "apiVersion": "autoscaling/v1", "metadata": meta, "spec": spec, "status": status })
}

/// Formats the selector as a string. The selector of ReplicationControllers is a plain label map.
fn shown_selector(selector: &Value) -> String {
    match selector.as_object() {
        Some(labels) if labels.values().all(Value::is_string) => selector::shown_labels(Some(labels)),
        _ => selector::shown(selector),
    }
}

/// A change to a scale.
enum Change {
    To(Value),
    Patch {
        kind: PatchKind,
        validation: FieldValidation,
        target: Target,
    },
    /// A scale, and the equivalent configuration of the scaled object.
    Apply {
        scale: Value,
        configuration: Value,
    },
}

struct Scaled<'a> {
    call: &'a Call<'a>,
    name: &'a str,
    change: Change,
}

impl UpdatedObjectInfo for Scaled<'_> {
    fn make(&mut self, current: Option<&Value>) -> Result<Value, Status> {
        let current = current.ok_or_else(|| self.call.not_found(self.name))?;
        let scale = match &self.change {
            Change::To(scale) => scale.clone(),
            Change::Apply { scale, configuration } => {
                self.check(scale, current)?;
                return rest_apply::merge(self.call, Some(current), configuration);
            }
            Change::Patch { kind, validation, target } => {
                patch::apply(self.call, *kind, target, &self.patched(current)?, *validation)?
            }
        };
        self.check(&scale, current)?;
        let mut object = current.clone();
        set_replicas(self.call.served, &mut object, scale.at("spec").count("replicas"));
        let version = metadata::of(&scale).text("resourceVersion");
        // Custom resources need a resource version for updates, so keep the one that was read.
        if !version.is_empty() || custom_paths(self.call.served).is_none() {
            object.object_mut("metadata").set("resourceVersion", version);
        }
        Ok(object)
    }

    fn is_apply(&self) -> bool {
        matches!(self.change, Change::Apply { .. })
    }
}

impl Scaled<'_> {
    /// Returns the scale to patch. If a custom resource has no replicas, uses a sentinel that `check` rejects.
    fn patched(&self, current: &Value) -> Result<Value, Status> {
        let mut scale = scale_of(self.call.served, current)?;
        if let Some(paths) = custom_paths(self.call.served)
            && scale::nested_number(current, &paths.spec).map_err(Status::unknown)?.is_none()
        {
            scale.object_mut("spec").set("replicas", i32::MIN);
        }
        Ok(scale)
    }

    fn check(&self, scale: &Value, current: &Value) -> Result<(), Status> {
        update::check_name(scale, self.name)?;
        match custom_paths(self.call.served) {
            Some(paths) if scale.at("spec").int("replicas") == Some(i32::MIN.into()) => {
                let why = format!("the spec replicas field {:?} cannot be empty", paths.written);
                return Err(Status::bad_request(why));
            }
            // Errors in a custom resource's scale surface when the object is validated.
            Some(_) if matches!(self.change, Change::To(_)) => {}
            Some(_) => return Ok(()),
            None => self.validate(scale)?,
        }
        let (wanted, found) = (metadata::of(scale).text("uid"), metadata::of(current).text("uid"));
        if wanted.is_empty() || wanted == found {
            return Ok(());
        }
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        Err(Status::conflict(self.call.served.named(), self.name, why))
    }

    fn validate(&self, scale: &Value) -> Result<(), Status> {
        let mut errors =
            metadata::validate(scale, self.call.served.kind.is_namespaced(), NameRule::Subdomain);
        let replicas = scale.at("spec").count("replicas");
        if replicas < 0 {
            let path = Path::root("spec");
            errors.invalid(&path.child("replicas"), replicas, NEGATIVE_REPLICAS);
        }
        if errors.is_empty() { Ok(()) } else { Err(Status::invalid(SCALES, self.name, &errors)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_written_sorted_by_key() {
        let selector = json!({
            "matchLabels": { "b": "1" },
            "matchExpressions": [
                { "key": "c", "operator": "NotIn", "values": ["y", "x"] },
                { "key": "a", "operator": "Exists" },
                { "key": "d", "operator": "DoesNotExist" },
            ],
        });
        assert_eq!(shown_selector(&selector), "a,b=1,c notin (x,y),!d");
        assert_eq!(shown_selector(&json!({ "a": "b", "c": "d" })), "a=b,c=d");
        assert_eq!(shown_selector(&Value::Null), "");
    }
}
