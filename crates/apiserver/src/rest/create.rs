//! Creates objects.

use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Write};

use super::{ATTEMPTS, Call, Outcome, ownership, respond, size};
use crate::admission::{Operation, Review};
use crate::apply::ManagedFields;
use crate::body::Body;
use crate::decode;
use crate::facts::Facts;
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::options::{OptionsOf, WriteOptions};
use crate::services::Claim;
use crate::status::{Named, Status};

/// How many generated names to try before reporting a conflict.
const NAME_ATTEMPTS: usize = 8;
const SUFFIX_LENGTH: usize = 5;
/// A longer `generateName` is truncated, so that it fits together with the suffix.
const GENERATED_PREFIX_LENGTH: usize = 63 - SUFFIX_LENGTH;

pub(crate) async fn create(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let mut object = decode::object(call, options.field_validation)?;
    metadata::wipe_system_fields(&mut object);
    metadata::normalize_namespace(&mut object, call.namespace)?;
    warn_of_repeated_owners(call, &mut object, false);
    let fields = ownership::note_create(call, &mut object).await?;
    let review = review(call, &options, object_name(&object)).with_fields(&fields, &ManagedFields::default());
    review.mutate(&mut object, None).await?;
    let fields = review.managed_fields();
    warn_of_repeated_owners(call, &mut object, true);
    metadata::normalize_namespace(&mut object, call.namespace)?;
    let outcome = insert(call, object, fields, &options).await?;
    respond::outcome(call, StatusCode::CREATED, outcome).await
}

fn object_name(object: &Value) -> String {
    metadata::of(object).text("name").to_string()
}

fn review<'a>(call: &'a Call<'_>, options: &WriteOptions, name: String) -> Review<'a> {
    Review::new(call, Operation::Create, name, options.dry_run)
}

pub(crate) fn warn_of_repeated_owners(call: &Call<'_>, object: &mut Value, after_admission: bool) {
    let repeated = metadata::dedup_owner_references(object);
    if repeated.is_empty() {
        return;
    }
    let when = if after_admission { " after mutating admission happens" } else { "" };
    call.context.warnings.add(format!(
        ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references in 1.20+, \
         and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: {}",
        repeated.join(", ")
    ));
}

/// Stores an object that has passed admission, under a generated name if it has none.
pub(crate) async fn insert(
    call: &Call<'_>,
    mut object: Value,
    fields: ManagedFields,
    options: &WriteOptions,
) -> Result<Outcome, Status> {
    let meta = metadata::of(&object);
    let names = (meta.text("name"), meta.text("generateName"));
    if names == ("", "") && call.served.kind.semantics.generates_names {
        object.object_mut("metadata").set("name", call.server.rng.uid().to_string());
        return insert_named(call, object, fields, options, false).await;
    }
    if !names.0.is_empty() || names.1.is_empty() {
        return insert_named(call, object, fields, options, false).await;
    }
    let name = free_name(call, meta.text("generateName")).await?;
    object.object_mut("metadata").set("name", name);
    insert_named(call, object, fields, options, true).await
}

/// Generates an unused name. If another client takes it in the meantime, the create fails and the client is asked to
/// retry.
async fn free_name(call: &Call<'_>, prefix: &str) -> Result<String, Status> {
    let mut name = generated_name(call, prefix);
    for _ in 1..NAME_ATTEMPTS {
        call.check_awaited()?;
        let key = call.served.key(call.namespace, &name);
        let found = call.server.store.get(&key, None).await.map_err(|why| call.server.refusal(why))?;
        if found.is_none() {
            break;
        }
        name = generated_name(call, prefix);
    }
    Ok(name)
}

fn generated_name(call: &Call<'_>, prefix: &str) -> String {
    let mut end = prefix.len().min(GENERATED_PREFIX_LENGTH);
    while !prefix.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{}", &prefix[..end], call.server.rng.suffix(SUFFIX_LENGTH))
}

/// Stores an object under its name. If another server was faster to claim what was chosen for it, chooses again.
async fn insert_named(
    call: &Call<'_>,
    object: Value,
    fields: ManagedFields,
    options: &WriteOptions,
    is_generated: bool,
) -> Result<Outcome, Status> {
    if !call.server.claims_for(call.served) {
        let stored = attempt(call, object, &fields, options, is_generated).await?;
        return stored.ok_or_else(|| Status::internal("an object without claims was claimed for"));
    }
    for at in 0..ATTEMPTS {
        call.check_retry(at)?;
        if let Some(stored) = attempt(call, object.clone(), &fields, options, is_generated).await? {
            return Ok(stored);
        }
    }
    Err(Status::internal("failed to allocate a serviceIP: other servers keep taking what was chosen"))
}

/// Attempts to store an object. `None`: another server was faster to claim what was chosen.
async fn attempt(
    call: &Call<'_>,
    mut object: Value,
    fields: &ManagedFields,
    options: &WriteOptions,
    is_generated: bool,
) -> Result<Option<Outcome>, Status> {
    let (strategy, semantics) = (&*call.served.kind.strategy, &call.served.kind.semantics);
    metadata::fill_system_fields(&mut object, call.server.rng.uid(), call.now);
    let claim = choose(call, &mut object).await?;
    semantics.prepare_for_create(&mut object);
    strategy.prepare_for_create(&mut object);
    strategy.stamp(&mut object, None, call.user, call.now);
    if semantics.counts_generations {
        object.object_mut("metadata").set("generation", 1);
    }
    validate(call, &object)?;
    for warning in strategy.warnings(&object, None) {
        call.context.warnings.add(warning);
    }
    strategy.canonicalize(&mut object);
    let name = object_name(&object);
    let review = review(call, options, name.clone()).with_fields(fields, &ManagedFields::default());
    review.check(Some(&object), None).await?;
    refuse_version(&object)?;
    object.object_mut("metadata").unset("resourceVersion");
    normalize(call, &mut object);
    let taken = |why: Error| match why {
        Error::Conflict { current } => {
            let deleting = current.is_some_and(|record| Facts::of(&record, call.served).is_being_deleted());
            already_exists(call, &name, is_generated, deleting)
        }
        other => call.server.refusal(other),
    };
    let key = call.served.key(call.namespace, &name);
    if options.dry_run {
        return match call.server.store.get(&key, None).await.map_err(|why| call.server.refusal(why))? {
            Some(current) => Err(taken(Error::Conflict { current: Some(current) })),
            None => Ok(Some(Outcome::Unstored(call.as_if_stored(object, fields).await?))),
        };
    }
    let payload = size::encode(call, &object, fields).await?;
    if !claim.make(call.server, &object).await? {
        return Ok(None);
    }
    let ttl = strategy.time_to_live(&object, call.now);
    let change = Change::Put { payload, ttl };
    let write = Write { key, expect: Expect::Absent, change };
    match call.server.store.commit(write).await {
        Ok(record) => {
            claim.keep(call.server, &object).await;
            call.server.convert_in_background(call.served, &record);
            Ok(Some(Outcome::Stored(record)))
        }
        Err(why) => {
            claim.give_up_after(call.server, &object, &why).await;
            Err(taken(why))
        }
    }
}

/// Brings a custom resource into its stored form.
pub(crate) fn normalize(call: &Call<'_>, object: &mut Value) {
    if let Some(custom) = &call.served.kind.custom {
        custom.normalize(object, super::is_apply(call));
    }
}

async fn choose(call: &Call<'_>, object: &mut Value) -> Result<Claim, Status> {
    if !call.server.claims_for(call.served) {
        return Ok(Claim::default());
    }
    let services = &call.server.services;
    if !call.server.store.is_shared() {
        return services.for_create(call.server, object).await;
    }
    let before = object.clone();
    match services.for_create(call.server, object).await {
        Ok(claim) => Ok(claim),
        // What is in the way may be gone, on another server.
        Err(_) => {
            call.latest().await?;
            *object = before;
            services.for_create(call.server, object).await
        }
    }
}

/// Rejects a resource version on a new object. v1.34 checks this last.
fn refuse_version(object: &Value) -> Result<(), Status> {
    match super::list::parse_revision(metadata::of(object).text("resourceVersion")) {
        Ok(Some(1..)) => Err(Status::unknown("resourceVersion should not be set on objects to be created")),
        _ => Ok(()),
    }
}

fn validate(call: &Call<'_>, object: &Value) -> Result<(), Status> {
    let kind = &call.served.kind;
    let mut errors = metadata::validate(object, kind.is_namespaced(), kind.semantics.names);
    errors.extend(kind.strategy.validate(object));
    if errors.is_empty() {
        return Ok(());
    }
    // If the object states another kind, the error is about that kind.
    let of = Named { resource: object.text("kind"), ..Named::kind(kind) };
    Err(Status::invalid(of, metadata::of(object).text("name"), &errors))
}

fn already_exists(call: &Call<'_>, name: &str, is_generated: bool, is_deleting: bool) -> Status {
    let mut status = match is_generated {
        true => Status::generated_name_taken(call.served.named(), name),
        false => Status::already_exists(call.served.named(), name),
    };
    if is_deleting {
        status.message = format!("object is being deleted: {}", status.message);
    }
    status
}
