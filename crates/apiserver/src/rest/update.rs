//! Updates: the common path of updates, patches and subresources.

use std::sync::Arc;

use http::{Response, StatusCode};
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Write};

use super::{ATTEMPTS, Call, MODIFIED, Outcome, create, ownership, respond, size};
use crate::admission::{Operation, Review};
use crate::apply::{Live, ManagedFields};
use crate::auth::Attributes;
use crate::body::Body;
use crate::decode;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Subresource, Verb};
use crate::metadata;
use crate::options::{OptionsOf, WriteOptions};
use crate::request::ResourceTarget;
use crate::services::Claim;
use crate::status::{Named, Status};
use crate::strategy::NameRule;

/// Computes the new state of an object from its current one; `None` if the object does not exist.
pub(crate) trait UpdatedObjectInfo {
    fn make(&mut self, current: Option<&Value>) -> Result<Value, Status>;

    /// Whether [`make`](Self::make) needs the managed fields of the current state.
    fn sees_managed_fields(&self) -> bool {
        self.is_apply()
    }

    /// Returns the uid that the object must have.
    fn uid(&self) -> Option<&str> {
        None
    }

    /// Whether this is an apply, which creates missing objects and tracks field ownership itself.
    fn is_apply(&self) -> bool {
        false
    }

    /// Whether [`make`](Self::make) can be called again if the object changed concurrently.
    fn can_retry(&self) -> bool {
        true
    }
}

pub(crate) async fn update(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let name = call.name()?;
    let options = WriteOptions::parse(call.query, OptionsOf::Update)?;
    let mut object = decode::object(call, options.field_validation)?;
    metadata::normalize_namespace(&mut object, call.namespace)?;
    check_name(&object, name)?;
    create::warn_of_repeated_owners(call, &mut object, false);
    let mut maker = Replacement::new(object);
    let (outcome, created) = apply(call, name, &options, &mut maker).await?;
    let code = if created { StatusCode::CREATED } else { StatusCode::OK };
    respond::outcome(call, code, outcome).await
}

/// Checks that an object's name matches the path.
pub(crate) fn check_name(object: &Value, name: &str) -> Result<(), Status> {
    match metadata::of(object).text("name") {
        "" => Err(Status::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        ))),
        found if found != name => Err(Status::bad_request(format!(
            "the name of the object ({found}) does not match the name on the URL ({name})"
        ))),
        _ => Ok(()),
    }
}

/// A full replacement sent by a client.
struct Replacement {
    object: Option<Value>,
    uid: String,
    /// Sent without a resource version: replaces any current state.
    is_unconditional: bool,
}

impl Replacement {
    fn new(object: Value) -> Self {
        let meta = metadata::of(&object);
        let uid = meta.text("uid").to_string();
        let is_unconditional = matches!(meta.text("resourceVersion"), "" | "0");
        Self { object: Some(object), uid, is_unconditional }
    }
}

impl UpdatedObjectInfo for Replacement {
    fn make(&mut self, _: Option<&Value>) -> Result<Value, Status> {
        let object = if self.is_unconditional { self.object.clone() } else { self.object.take() };
        object.ok_or_else(|| Status::internal("an update was asked for its object twice"))
    }

    fn uid(&self) -> Option<&str> {
        Some(self.uid.as_str()).filter(|uid| !uid.is_empty())
    }

    fn can_retry(&self) -> bool {
        self.is_unconditional
    }
}

/// Applies a change, retrying if the object changes concurrently. Returns whether the object was created.
pub(crate) async fn apply(
    call: &Call<'_>,
    name: &str,
    options: &WriteOptions,
    maker: &mut impl UpdatedObjectInfo,
) -> Result<(Outcome, bool), Status> {
    let key = call.served.key(call.namespace, name);
    let store = &call.server.store;
    let read = async |at| store.get(&key, at).await.map_err(|why| call.server.refusal(why));
    // Almost always, what this server last saw is the latest, and if not, the commit finds out. But a failure counts only
    // if it is due to the latest state.
    let mut current = read(None).await?;
    let mut is_latest = false;
    for attempt in 0..ATTEMPTS {
        call.check_retry(attempt)?;
        let seen = current.as_ref().map(|record| record.modified);
        let failure = match current {
            None if is_latest => {
                return create_absent(call, name, options, maker).await.map(|outcome| (outcome, true));
            }
            None => None,
            Some(record) => match change(call, name, options, maker, &record).await {
                Ok(Ok(outcome)) => return Ok((outcome, false)),
                Ok(Err(_)) if is_latest && !maker.can_retry() => break,
                Ok(Err(newer)) => {
                    current = newer;
                    is_latest = true;
                    continue;
                }
                Err(status) if is_latest => return Err(status),
                Err(status) => Some(status),
            },
        };
        is_latest = true;
        current = read(call.latest().await?).await?;
        if let Some(status) = failure.filter(|_| current.as_ref().map(|record| record.modified) == seen) {
            return Err(status);
        }
    }
    Err(Status::conflict(call.served.named(), name, MODIFIED))
}

async fn create_absent(
    call: &Call<'_>,
    name: &str,
    options: &WriteOptions,
    maker: &mut impl UpdatedObjectInfo,
) -> Result<Outcome, Status> {
    let creates = maker.is_apply() || call.served.kind.semantics.create_on_update;
    if call.subresource.is_some() || !creates {
        return Err(call.not_found(name));
    }
    if let Some(uid) = maker.uid() {
        return Err(uid_mismatch(call, name, uid, "", 0));
    }
    authorize_create(call, name).await?;
    let mut object = maker.make(None)?;
    object.object_mut("metadata").unset("resourceVersion");
    let fields = match maker.is_apply() {
        true => ManagedFields::take_from(&mut object),
        false => ownership::note_create(call, &mut object).await?,
    };
    let review = Review::new(call, Operation::Create, name.to_string(), options.dry_run)
        .with_fields(&fields, &ManagedFields::default());
    review.mutate(&mut object, None).await?;
    metadata::normalize_namespace(&mut object, call.namespace)?;
    create::insert(call, object, review.managed_fields(), options).await
}

/// Authorizes a create: the right to update an object does not include it.
async fn authorize_create(call: &Call<'_>, name: &str) -> Result<(), Status> {
    let kind = &call.served.kind;
    let target = ResourceTarget {
        verb: Some(Verb::Create),
        group: kind.group.to_string(),
        version: kind.version.to_string(),
        namespace: call.namespace.map(Into::into),
        resource: kind.plural.to_string(),
        name: Some(name.into()),
        ..ResourceTarget::default()
    };
    let attributes = Attributes { user: call.user, verb: "create", path: "", resource: Some(&target) };
    let decision = call.server.authorizer.authorize(&attributes).await;
    if decision.is_allowed() { Ok(()) } else { Err(attributes.forbidden(decision.reason())) }
}

fn uid_mismatch(call: &Call<'_>, name: &str, wanted: &str, found: &str, revision: u64) -> Status {
    let key = match call.namespace {
        Some(namespace) => format!("/registry/{}/{namespace}/{name}", call.served.kind.plural),
        None => format!("/registry/{}/{name}", call.served.kind.plural),
    };
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {key}, ResourceVersion: {revision}, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
    );
    Status::conflict(call.served.named(), name, why)
}

/// Attempts the change on one state. The inner error is the newer state after a conflict.
async fn change(
    call: &Call<'_>,
    name: &str,
    options: &WriteOptions,
    maker: &mut impl UpdatedObjectInfo,
    record: &Arc<Record>,
) -> Result<Result<Outcome, Option<Arc<Record>>>, Status> {
    let old = call.served.decode_bare(&*call.shown(record).await?)?;
    let old_fields = ManagedFields::of(record);
    let old_uid = metadata::of(&old).text("uid");
    if let Some(uid) = maker.uid().filter(|uid| *uid != old_uid) {
        return Err(uid_mismatch(call, name, uid, old_uid, 0));
    }
    let mut new = match (maker.sees_managed_fields(), call.served.kind.semantics.hides) {
        (true, _) => {
            let current = old_fields.inside(call.served.as_seen(old.clone()));
            ownership::with_versions(call, || maker.make(Some(&current))).await??
        }
        (false, Some(_)) => maker.make(Some(&call.served.as_seen(old.clone())))?,
        (false, None) => maker.make(Some(&old))?,
    };
    let fields = match maker.is_apply() {
        true => ManagedFields::take_from(&mut new),
        false => ownership::note_update(call, Live { object: &old, fields: &old_fields }, &mut new).await?,
    };
    let review = Review::new(call, Operation::Update, name.to_string(), options.dry_run)
        .with_fields(&fields, &old_fields);
    review.mutate(&mut new, Some(&old)).await?;
    let fields = review.managed_fields();
    create::warn_of_repeated_owners(call, &mut new, true);
    metadata::normalize_namespace(&mut new, call.namespace)?;
    default_resource_version(call, name, &mut new, record)?;
    let claim = choose(call, &mut new, &old).await?;
    prepare(call, &mut new, &old);
    let tolerated = validate(call, &new, &old)?;
    let strategy = &*call.served.kind.strategy;
    for warning in strategy.warnings(&new, Some(&old)).into_iter().chain(tolerated) {
        call.context.warnings.add(warning);
    }
    strategy.canonicalize(&mut new);
    let fields = fields.keeping_times(&old_fields, || new == old);
    review.check(Some(&new), Some(&old)).await?;
    if is_finished(call, &new, &old) {
        return remove(call, options, fields.inside(new), &old, record).await;
    }
    if options.dry_run {
        return store(call, options, new, &fields, record).await;
    }
    if !claim.make(call.server, &old).await? {
        // Another server was faster. What it has taken is not chosen again.
        return Ok(Err(Some(record.clone())));
    }
    let outcome = store(call, options, new, &fields, record).await;
    match &outcome {
        Ok(Ok(_)) => claim.keep(call.server, &old).await,
        Ok(Err(_)) => claim.give_up(call.server, &old).await,
        // It may be stored. If not, the repair frees what was claimed.
        Err(_) => {}
    }
    outcome
}

/// Sets the current resource version if there is none; a different version is a conflict.
fn default_resource_version(
    call: &Call<'_>,
    name: &str,
    new: &mut Value,
    record: &Record,
) -> Result<(), Status> {
    let version = metadata::of(new).text("resourceVersion").to_string();
    let current = record.modified.to_string();
    if matches!(version.as_str(), "" | "0") {
        if !call.served.kind.semantics.unconditional_update {
            let mut errors = Errors::default();
            let path = Path::root("metadata");
            errors.invalid(&path.child("resourceVersion"), 0, "must be specified for an update");
            return Err(Status::invalid(call.served.named(), name, &errors));
        }
        new.object_mut("metadata").set("resourceVersion", current);
        return Ok(());
    }
    super::list::parse_revision(&version).map_err(Status::unknown)?;
    if version == current { Ok(()) } else { Err(Status::conflict(call.served.named(), name, MODIFIED)) }
}

async fn choose(call: &Call<'_>, new: &mut Value, old: &Value) -> Result<Claim, Status> {
    match call.server.claims_for(call.served) && call.subresource.is_none() {
        true => call.server.services.for_update(call.server, new, old).await,
        false => Ok(Claim::default()),
    }
}

fn prepare(call: &Call<'_>, new: &mut Value, old: &Value) {
    let (strategy, semantics) = (&*call.served.kind.strategy, &call.served.kind.semantics);
    let generation = metadata::of(old).at("generation").clone();
    new.object_mut("metadata").restore("generation", metadata::of(old));
    semantics.prepare_for_update(call.subresource, new, old);
    match call.subresource {
        None | Some(Subresource::Scale) => strategy.prepare_for_update(new, old),
        Some(subresource) => strategy.prepare_for_subresource_update(subresource, new, old),
    }
    strategy.stamp(new, Some(old), call.user, call.now);
    // A status write does not increment the generation, even if it changes metadata.
    let is_untouched =
        call.subresource != Some(Subresource::Status) && metadata::of(new).at("generation") == &generation;
    if semantics.counts_generations && is_untouched && strategy.changes_generation(new, old) {
        let next = generation.as_i64().unwrap_or(0).wrapping_add(1);
        new.object_mut("metadata").set("generation", next);
    }
    metadata::carry_over(new, old);
}

/// Rejects a change that makes the object invalid. Returns warnings about existing errors.
fn validate(call: &Call<'_>, new: &Value, old: &Value) -> Result<Vec<String>, Status> {
    let kind = &call.served.kind;
    let mut errors = metadata::validate(new, kind.is_namespaced(), NameRule::PathSegment);
    errors.extend(metadata::validate_update(new, old));
    if !errors.is_empty() {
        // v1.34's kinds validate metadata updates a second time, and clients see both errors.
        errors.extend(metadata::validate_update(new, old));
    }
    let mut warnings = Vec::new();
    errors.extend(kind.strategy.validate_change(call.subresource, new, old, &mut warnings));
    if errors.is_empty() {
        return Ok(warnings);
    }
    let of = Named { resource: new.text("kind"), ..Named::kind(kind) };
    Err(Status::invalid(of, metadata::of(new).text("name"), &errors))
}

/// Whether the last finalizer of an object being deleted is gone.
fn is_finished(call: &Call<'_>, new: &Value, old: &Value) -> bool {
    let old = metadata::of(old);
    metadata::finalizers(new).next().is_none()
        && old.has("deletionTimestamp")
        && old.int("deletionGracePeriodSeconds").unwrap_or(0) == 0
        && !call.served.kind.strategy.holds_deletion(new)
}

async fn remove(
    call: &Call<'_>,
    options: &WriteOptions,
    new: Value,
    old: &Value,
    record: &Arc<Record>,
) -> Result<Result<Outcome, Option<Arc<Record>>>, Status> {
    if !options.dry_run {
        let expect = Expect::Revision(record.modified);
        let write = Write { key: record.key.clone(), expect, change: Change::Delete };
        match call.server.store.commit(write).await {
            Ok(_) => super::delete::release_allocations(call.server, call.served, old).await,
            Err(Error::Conflict { current }) => return Ok(Err(current)),
            Err(why) => return Err(call.server.refusal(why)),
        }
    }
    Ok(Ok(Outcome::Unstored(new)))
}

/// Stores the new state, unless it equals the old one and its stored form is up to date.
pub(crate) async fn store(
    call: &Call<'_>,
    options: &WriteOptions,
    mut new: Value,
    fields: &ManagedFields,
    record: &Arc<Record>,
) -> Result<Result<Outcome, Option<Arc<Record>>>, Status> {
    create::normalize(call, &mut new);
    let payload = size::encode(call, &new, fields).await?;
    if record.holds(&payload) && (options.dry_run || !call.server.store.is_stale(record)) {
        // Nothing is committed that would find out that another server has changed it.
        let at = call.latest().await?;
        let latest = call.server.store.get(&record.key, at).await.map_err(|why| call.server.refusal(why))?;
        let is_latest = latest.as_ref().is_some_and(|latest| latest.modified == record.modified);
        return Ok(if is_latest { Ok(Outcome::Stored(record.clone())) } else { Err(latest) });
    }
    if options.dry_run {
        return Ok(Ok(Outcome::Unstored(call.as_if_stored(new, fields).await?)));
    }
    let ttl = call.served.kind.strategy.time_to_live(&new, call.now);
    let expect = Expect::Revision(record.modified);
    let write = Write { key: record.key.clone(), expect, change: Change::Put { payload, ttl } };
    match call.server.store.commit(write).await {
        Ok(record) => {
            call.server.convert_in_background(call.served, &record);
            Ok(Ok(Outcome::Stored(record)))
        }
        Err(Error::Conflict { current }) => Ok(Err(current)),
        Err(why) => Err(call.server.refusal(why)),
    }
}
