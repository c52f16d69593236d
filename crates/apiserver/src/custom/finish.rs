//! The end of a definition: its objects first.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use http::HeaderMap;
use jiff::Timestamp;
use serde_json::Value;
use setpoint_store::{Change, Error, Expect, Record, Write};

use super::definitions::Definition;
use super::names::{Condition, is_true, set_condition};
use crate::auth::User;
use crate::chain::Context;
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::negotiate::Output;
use crate::options::DeleteOptions;
use crate::query::Query;
use crate::registry::{Registry, Served};
use crate::rest::{Call, delete, delete_collection};
use crate::selector::{name_of, namespace_of};
use crate::server::Server;
use crate::status::Status;

/// The finalizer of definitions that are being deleted.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Goes on with each definition that is being deleted. Whether anything was written.
pub(super) async fn finish_deleted(
    server: &Server,
    built_in: &Registry,
    served: &Served,
    definitions: impl Iterator<Item = &Definition>,
) -> Result<bool, Status> {
    let mut has_written = false;
    for Definition { record, outline, .. } in definitions {
        let is_deleted = metadata::of(outline).has("deletionTimestamp");
        if is_deleted && metadata::finalizers(outline).any(|finalizer| finalizer == CLEANUP) {
            let definition = served.decode_bare(record)?;
            has_written |= finish_one(server, built_in, served, record, &definition).await?;
        }
    }
    Ok(has_written)
}

async fn finish_one(
    server: &Server,
    built_in: &Registry,
    served: &Served,
    record: &Arc<Record>,
    definition: &Value,
) -> Result<bool, Status> {
    let now = server.now();
    let stored_as = format!(
        "{}/{}",
        definition.at("spec").text("group"),
        definition.at("spec").at("names").text("plural")
    );
    if built_in.all().any(|served| served.kind.stored_as == stored_as) {
        let message = "instances overlap with built-in resources in storage";
        return release(server, served, record, definition, "OverlappingBuiltInResource", message, now).await;
    }
    if !is_true(definition, "Established") {
        let message = "resource was never established";
        return release(server, served, record, definition, "NeverEstablished", message, now).await;
    }
    let kinds = server.registry.snapshot();
    let kind = kinds.all().find(|served| served.kind.stored_as == stored_as).cloned();
    let left = match kind.or_else(|| super::definitions::unserved_kind(definition)) {
        Some(kind) => delete_objects(server, &kind).await?,
        None => false,
    };
    if left {
        return note_progress(server, served, record, definition, now).await;
    }
    release(server, served, record, definition, "InstanceDeletionCompleted", "removed all instances", now)
        .await
}

/// Deletes all objects of a kind. Whether some are left, because something holds them.
async fn delete_objects(server: &Server, kind: &Arc<Served>) -> Result<bool, Status> {
    let range = kind.range(None);
    let all = || server.store.list(&range, setpoint_store::ListOptions::default());
    let found = all().await.map_err(|why| server.refusal(why))?;
    let delete = |record| delete_object(server, kind, Arc::clone(record)).boxed();
    delete_collection::several(&found.records, delete).await?;
    Ok(!all().await.map_err(|why| server.refusal(why))?.records.is_empty())
}

async fn delete_object(server: &Server, kind: &Arc<Served>, record: Arc<Record>) -> Result<(), Status> {
    let (name, namespace) = (name_of(&record).to_owned(), namespace_of(&record).to_owned());
    let (user, query, headers, body) =
        (User::system("system:apiserver"), Query::default(), HeaderMap::new(), Bytes::new());
    let call = Call {
        server,
        user: &user,
        served: kind,
        subresource: None,
        namespace: Some(namespace.as_str()).filter(|_| kind.kind.is_namespaced()),
        name: Some(&name),
        query: &query,
        headers: &headers,
        body: &body,
        output: Output::JSON,
        context: &Context::default(),
        now: server.now(),
    };
    match delete::remove(&call, &name, record, &DeleteOptions::default()).await {
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}

async fn note_progress(
    server: &Server,
    served: &Served,
    record: &Record,
    definition: &Value,
    now: Timestamp,
) -> Result<bool, Status> {
    let condition = Condition {
        kind: "Terminating",
        status: "True",
        reason: "InstanceDeletionInProgress",
        message: "CustomResource deletion is in progress",
    };
    let mut noted = definition.clone();
    set_condition(&mut noted, &condition, now);
    if noted == *definition {
        return Ok(false);
    }
    Ok(server.write_definition(served, record, definition, noted).await?.is_some())
}

/// Takes the finalizer away, and with the last one the definition.
async fn release(
    server: &Server,
    served: &Served,
    record: &Record,
    definition: &Value,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> Result<bool, Status> {
    let mut released = definition.clone();
    let condition = Condition { kind: "Terminating", status: "False", reason, message };
    set_condition(&mut released, &condition, now);
    let left: Vec<&str> =
        metadata::finalizers(definition).filter(|finalizer| *finalizer != CLEANUP).collect();
    if !left.is_empty() {
        released.object_mut("metadata").set("finalizers", left);
        return Ok(server.write_definition(served, record, definition, released).await?.is_some());
    }
    let expect = Expect::Revision(record.modified);
    match server.store.commit(Write { key: record.key.clone(), expect, change: Change::Delete }).await {
        Ok(_) | Err(Error::Conflict { .. }) => Ok(true),
        Err(why) => Err(server.refusal(why)),
    }
}
