//! Deletions that ask first whether the pod can be spared.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_store::Record;

use super::pod_condition::Condition;
use super::{ATTEMPTS, Call, MODIFIED, Outcome, delete, respond, update};
use crate::admission::{Operation, Review};
use crate::body::Body;
use crate::decode;
use crate::json::Json;
use crate::metadata;
use crate::options::{DeleteOptions, OptionsOf, WriteOptions};
use crate::schema::Target;
use crate::status::Status;

const EVICTION: &str = "io.k8s.api.policy.v1.Eviction";
const DISRUPTION: Condition = Condition {
    kind: "DisruptionTarget",
    reason: "EvictionByEvictionAPI",
    message: "Eviction API: evicting",
};

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let target = Target::built_in(EVICTION).ok_or_else(|| Status::internal("no schema of Eviction"))?;
    let mut eviction = decode::document(call, &target, options.field_validation)?;
    metadata::settle_namespace(&mut eviction, call.namespace)?;
    let name = call.name()?;
    if metadata::of(&eviction).text("name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    let mut deletion = delete_options(call, &eviction)?;
    deletion.dry_run |= options.dry_run;
    let review = Review::new(call, Operation::Create, name.to_string(), deletion.dry_run);
    review.mutate(&mut eviction, None).await?;
    review.check(Some(&eviction), None).await?;
    evict(call, name, deletion).await?;
    Ok(respond::status(call, StatusCode::CREATED, &Status::success(201)))
}

fn delete_options(call: &Call<'_>, eviction: &Value) -> Result<DeleteOptions, Status> {
    match eviction.at("deleteOptions") {
        Value::Null => Ok(DeleteOptions::default()),
        options => DeleteOptions::parse(Some(options.clone()), call.query),
    }
}

/// Marks the pod as disrupted, then deletes it.
async fn evict(call: &Call<'_>, name: &str, mut options: DeleteOptions) -> Result<(), Status> {
    let record = call.record().await?;
    let record = if options.dry_run { record } else { mark(call, name, record, &options).await? };
    if options.resource_version.is_some() {
        options.resource_version = Some(record.modified.to_string());
    }
    delete::remove(call, name, record, &options).await.map(drop)
}

async fn mark(
    call: &Call<'_>,
    name: &str,
    record: Arc<Record>,
    options: &DeleteOptions,
) -> Result<Arc<Record>, Status> {
    let mut record = record;
    let write = WriteOptions::default();
    for _ in 0..ATTEMPTS {
        let mut pod = call.served.decode(&record)?;
        delete::check_preconditions(call, name, &pod, options)?;
        DISRUPTION.set(&mut pod, call.now);
        match update::store(call, &write, pod, &record).await? {
            Ok(Outcome::Stored(marked)) => return Ok(marked),
            Ok(Outcome::Unstored(_)) => return Ok(record),
            Err(Some(newer)) => record = newer,
            Err(None) => return Err(call.not_found(name)),
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}
