//! Evictions: deletions that respect pod disruption budgets.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_store::Record;

use super::pod_condition::Condition;
use super::{ATTEMPTS, Call, MODIFIED, Outcome, delete, ownership, respond, update};
use crate::admission::{Operation, Review};
use crate::apply::{Live, ManagedFields};
use crate::body::Body;
use crate::decode;
use crate::json::Json;
use crate::kind::Subresource;
use crate::kinds::poddisruptionbudget::disruption::{self, Refusal};
use crate::metadata;
use crate::options::{DeleteOptions, OptionsOf, WriteOptions};
use crate::registry::{Gvr, Served};
use crate::schema::Target;
use crate::status::{Cause, Named, Status};

/// Maximum attempts if a budget, or a pod without one, keeps changing, as in v1.34.
const EVICTION_ATTEMPTS: usize = 20;
const SEVERAL_BUDGETS: &str =
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
const EVICTION: &str = "io.k8s.api.policy.v1.Eviction";
const DISRUPTION: Condition = Condition {
    kind: "DisruptionTarget",
    reason: "EvictionByEvictionAPI",
    message: "Eviction API: evicting",
};

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let mut target = Target::built_in(EVICTION).ok_or_else(|| Status::internal("no schema of Eviction"))?;
    // Older clients send an older version with the same schema.
    if decode::stated_version(call.body) == "policy/v1beta1" {
        target.version = "v1beta1".into();
    }
    let mut eviction = decode::document(call, &target, options.field_validation)?;
    metadata::normalize_namespace(&mut eviction, call.namespace)?;
    let name = call.name()?;
    if metadata::of(&eviction).text("name") != name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    check_dry_run(call, &eviction)?;
    let mut deletion = delete_options(call, &eviction)?;
    deletion.dry_run |= options.dry_run;
    let review = Review::new(call, Operation::Create, name.to_string(), deletion.dry_run);
    review.mutate(&mut eviction, None).await?;
    let deletion = DeleteOptions { dry_run: deletion.dry_run, ..delete_options(call, &eviction)? };
    review.check(Some(&eviction), None).await?;
    evict(call, name, deletion).await?;
    Ok(respond::status(call, StatusCode::CREATED, &Status::success(201)))
}

/// Checks that the dry-run options in the query and the body agree if both are set.
fn check_dry_run(call: &Call<'_>, eviction: &Value) -> Result<(), Status> {
    let asked: Vec<&str> = call.query.all("dryRun").collect();
    let written = eviction.at("deleteOptions").list("dryRun");
    let written: Vec<&str> = written.iter().filter_map(Value::as_str).collect();
    if asked.is_empty() || written.is_empty() || asked == written {
        return Ok(());
    }
    let (asked, written) = (asked.join(" "), written.join(" "));
    Err(Status::unknown(format!(
        "Non-matching dry-run options in request and content: [{asked}] and [{written}]"
    )))
}

fn delete_options(call: &Call<'_>, eviction: &Value) -> Result<DeleteOptions, Status> {
    match eviction.at("deleteOptions") {
        Value::Null => Ok(DeleteOptions::default()),
        options => DeleteOptions::parse(Some(options.clone()), call.query),
    }
}

async fn evict(call: &Call<'_>, name: &str, options: DeleteOptions) -> Result<(), Status> {
    for attempt in 0..EVICTION_ATTEMPTS {
        call.check_retry(attempt)?;
        let record = call.record().await?;
        let pod = call.served.decode_bare(&record)?;
        if !disruption::needs_no_budget(&pod) {
            return evict_guarded(call, name, record, &pod, options).await;
        }
        // A pod that may start serving concurrently is deleted only at the version that was checked.
        let is_pinned = disruption::may_become_healthy(&pod) && options.resource_version.is_none();
        let pinned = if is_pinned { pinned(&options, &record) } else { options.clone() };
        match mark_and_delete(call, name, record, pinned).await {
            Err(why) if why.is_conflict() && options.resource_version.is_none() => {}
            outcome => return outcome,
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}

/// Restricts the deletion to this version of the pod.
fn pinned(options: &DeleteOptions, record: &Record) -> DeleteOptions {
    DeleteOptions { resource_version: Some(record.modified.to_string()), ..options.clone() }
}

/// Evicts a pod that is protected by a budget, if the budget allows it.
async fn evict_guarded(
    call: &Call<'_>,
    name: &str,
    record: Arc<Record>,
    pod: &Value,
    options: DeleteOptions,
) -> Result<(), Status> {
    let served = call.server.served(&Gvr::new("policy", "v1", "poddisruptionbudgets"))?;
    let (budget, is_free) = match &guarding(call, &served, pod).await?[..] {
        [] => return mark_and_delete(call, name, record, options).await,
        [(budget, object)] => (budget.clone(), disruption::is_free(object, pod)),
        _ => return Err(Status::unknown(SEVERAL_BUDGETS)),
    };
    if !is_free {
        spend(call, &served, name, budget, options.dry_run).await?;
        return mark_and_delete(call, name, record, options).await;
    }
    let budget_name = metadata::of(&served.decode_bare(&budget)?).text("name").to_owned();
    let deletion = pinned(&options, &record);
    match mark_and_delete(call, name, record, deletion).await {
        Err(why) if why.is_conflict() && options.resource_version.is_none() => Err(unprocessed(&budget_name)),
        outcome => outcome,
    }
}

/// Returns the budgets that select a pod.
async fn guarding(
    call: &Call<'_>,
    served: &Served,
    pod: &Value,
) -> Result<Vec<(Arc<Record>, Value)>, Status> {
    let range = served.range(call.namespace);
    let options = setpoint_store::ListOptions::default();
    let page = call.server.store.list(&range, options).await.map_err(|why| call.server.refusal(why))?;
    let mut found = Vec::new();
    for record in page.records {
        let budget = served.decode_bare(&record)?;
        if disruption::guards(&budget, pod) {
            found.push((record, budget));
        }
    }
    Ok(found)
}

/// Decrements a budget's allowed disruptions, retrying if the budget changes concurrently.
async fn spend(
    call: &Call<'_>,
    served: &Arc<Served>,
    pod: &str,
    mut budget: Arc<Record>,
    dry_run: bool,
) -> Result<(), Status> {
    let of_budget = Call { served, subresource: Some(Subresource::Status), ..*call };
    let mut name = String::new();
    for attempt in 0..EVICTION_ATTEMPTS {
        call.check_retry(attempt)?;
        let object = served.decode_bare(&budget)?;
        name = metadata::of(&object).text("name").to_owned();
        let mut spent =
            disruption::spend(&object, pod, call.now).map_err(|refusal| refused(served, &name, refusal))?;
        let write = WriteOptions { dry_run, ..WriteOptions::default() };
        let live = Live { object: &object, fields: &ManagedFields::of(&budget) };
        let fields = ownership::note_own_status(call.server, served, live, &mut spent, call.now);
        match update::store(&of_budget, &write, spent, &fields, &budget).await? {
            Ok(_) => return Ok(()),
            Err(Some(newer)) => budget = newer,
            Err(None) => return Err(Status::not_found(served.named(), &name)),
        }
    }
    Err(Status::timeout(format!("couldn't update PodDisruptionBudget {name:?} due to conflicts"), 10))
}

fn refused(served: &Served, name: &str, refusal: Refusal) -> Status {
    let of = Named { group: &served.kind.group, resource: &served.kind.singular };
    match refusal {
        Refusal::Unobserved => unprocessed(name),
        Refusal::Exhausted { needed, healthy } => too_many(
            format!("The disruption budget {name} needs {needed} healthy pods and has {healthy} currently"),
            0,
        ),
        Refusal::Negative => Status::forbidden(of, name, "pdb disruptions allowed is negative"),
        Refusal::TooManyUnconfirmed => {
            let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
            Status::forbidden(of, name, why)
        }
    }
}

fn unprocessed(budget: &str) -> Status {
    too_many(format!("The disruption budget {budget} is still being processed by the server."), 10)
}

fn too_many(message: String, retry_after_seconds: u32) -> Status {
    let what = "Cannot evict pod as it would violate the pod's disruption budget.";
    let mut status = Status::too_many_requests(what, retry_after_seconds);
    status.add_cause(Cause { reason: "DisruptionBudget".into(), message, ..Cause::default() });
    status
}

/// Sets the pod's disruption condition, then deletes it.
async fn mark_and_delete(
    call: &Call<'_>,
    name: &str,
    record: Arc<Record>,
    mut options: DeleteOptions,
) -> Result<(), Status> {
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
    for attempt in 0..ATTEMPTS {
        call.check_retry(attempt)?;
        let mut pod = call.served.decode_bare(&record)?;
        delete::check_preconditions(call, name, &pod, options)?;
        DISRUPTION.set(&mut pod, call.now);
        match update::store(call, &write, pod, &ManagedFields::of(&record), &record).await? {
            Ok(Outcome::Stored(marked)) => return Ok(marked),
            Ok(Outcome::Unstored(_)) => return Ok(record),
            Err(Some(newer)) => record = newer,
            Err(None) => return Err(call.not_found(name)),
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}
