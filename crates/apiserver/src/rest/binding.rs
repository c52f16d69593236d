//! The `bindings` resource and subresource: assigns pods to nodes.

use http::{Response, StatusCode};
use serde_json::Value;

use super::pod_condition::Condition;
use super::{ATTEMPTS, Call, MODIFIED, respond, update};
use crate::admission::{Operation, Review, pod_topology};
use crate::apply::ManagedFields;
use crate::body::Body;
use crate::decode;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::options::{OptionsOf, WriteOptions};
use crate::registry::Gvr;
use crate::schema::Target;
use crate::status::{Named, Status};

const BINDING: &str = "io.k8s.api.core.v1.Binding";
const SCHEDULED: Condition = Condition { kind: "PodScheduled", reason: "", message: "" };

/// Handles a Binding posted to its own collection rather than to the pod's subresource.
pub(crate) async fn create_standalone(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let pods = call.server.served(&Gvr::new("", "v1", "pods"))?;
    let (binding, options) = read(call)?;
    let name = metadata::of(&binding).text("name").to_owned();
    let of_pod = Call { served: &pods, subresource: Some(Subresource::Binding), name: Some(&name), ..*call };
    admit(call, &of_pod, binding, &options).await
}

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let (binding, options) = read(call)?;
    if metadata::of(&binding).text("name") != call.name()? {
        return Err(Status::bad_request("name in URL does not match name in Binding object"));
    }
    admit(call, call, binding, &options).await
}

fn read(call: &Call<'_>) -> Result<(Value, WriteOptions), Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let target = Target::built_in(BINDING).ok_or_else(|| Status::internal("no schema of Binding"))?;
    let mut binding = decode::document(call, &target, options.field_validation)?;
    metadata::normalize_namespace(&mut binding, call.namespace)?;
    Ok((binding, options))
}

/// Assigns the pod if the binding is admitted, as what the client posted it to.
async fn admit(
    call: &Call<'_>,
    of_pod: &Call<'_>,
    mut binding: Value,
    options: &WriteOptions,
) -> Result<Response<Body>, Status> {
    let name = of_pod.name()?;
    let review = Review::new(call, Operation::Create, name.to_string(), options.dry_run);
    review.mutate(&mut binding, None).await?;
    check(&binding)?;
    review.check(Some(&binding), None).await?;
    assign(of_pod, name, &binding, options).await?;
    Ok(respond::status(call, StatusCode::CREATED, &Status::success(201)))
}

/// Validates a binding. v1.34 returns the plain validation errors, not an `Invalid` status.
fn check(binding: &Value) -> Result<(), Status> {
    let mut errors = Errors::default();
    let path = Path::root("target");
    let target = binding.at("target");
    if !matches!(target.text("kind"), "" | "Node") {
        errors.not_supported(&path.child("kind"), target.text("kind"), &["Node", "<empty>"]);
    }
    if target.text("name").is_empty() {
        errors.required(&path.child("name"), "");
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::unknown(errors.to_string())) }
}

async fn assign(call: &Call<'_>, name: &str, binding: &Value, options: &WriteOptions) -> Result<(), Status> {
    let mut record = call.record().await?;
    for attempt in 0..ATTEMPTS {
        call.check_retry(attempt)?;
        let mut pod = call.served.decode_bare(&record)?;
        check_preconditions(call, name, binding, &pod)?;
        bind(&mut pod, binding).map_err(|why| refuse(name, why))?;
        if call.server.features.has("ClearingNominatedNodeNameAfterBinding") {
            pod.object_mut("status").unset("nominatedNodeName");
        }
        if call.server.features.has(pod_topology::FEATURE) {
            for (key, value) in metadata::of(binding).map("labels").into_iter().flatten() {
                pod.object_mut("metadata").object_mut("labels").set(key, value.clone());
            }
        }
        SCHEDULED.set(&mut pod, call.now);
        match update::store(call, options, pod, &ManagedFields::of(&record), &record).await? {
            Ok(_) => return Ok(()),
            Err(Some(newer)) => record = newer,
            Err(None) => return Err(call.not_found(name)),
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}

fn refuse(name: &str, why: String) -> Status {
    Status::conflict(Named { group: "", resource: "pods/binding" }, name, why)
}

/// Checks the uid and resource version that a binding may specify for its pod.
fn check_preconditions(call: &Call<'_>, name: &str, binding: &Value, pod: &Value) -> Result<(), Status> {
    for (field, word) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
        let (wanted, found) = (metadata::of(binding).text(field), metadata::of(pod).text(field));
        if !wanted.is_empty() && wanted != found {
            let why = format!(
                "Precondition failed: {word} in precondition: {wanted}, {word} in object meta: {found}"
            );
            return Err(Status::conflict(call.served.named(), name, why));
        }
    }
    Ok(())
}

fn bind(pod: &mut Value, binding: &Value) -> Result<(), String> {
    let name = metadata::of(pod).text("name");
    if metadata::of(pod).has("deletionTimestamp") {
        return Err(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let node = pod.at("spec").text("nodeName");
    if !node.is_empty() {
        return Err(format!("pod {name} is already assigned to node {node:?}"));
    }
    if !pod.at("spec").list("schedulingGates").is_empty() {
        return Err(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod.object_mut("spec").set("nodeName", binding.at("target").text("name"));
    for (key, value) in metadata::of(binding).map("annotations").into_iter().flatten() {
        pod.object_mut("metadata").object_mut("annotations").set(key, value.clone());
    }
    Ok(())
}
