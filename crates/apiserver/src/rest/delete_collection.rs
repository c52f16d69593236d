//! Deletes all selected objects of a collection, several at a time.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::Response;
use setpoint_store::Record;

use super::{Call, delete, list};
use crate::body::Body;
use crate::options::{DeleteOptions, ListOptions};
use crate::selector::{name_of, namespace_of};
use crate::status::Status;

/// Number of concurrent deletions: enough to share the store's syncs, few enough to leave room for others.
pub(crate) const CONCURRENCY: usize = 32;

pub(crate) async fn delete_collection(call: &Call<'_>) -> Result<Response<Body>, Status> {
    let list_options = ListOptions::parse(call.query, call.namespace, false)?;
    let choice = list::choose(call, &list_options)?;
    let options = delete::options(call)?;
    let found = list::find(call, &list_options, &choice).await?;
    // If a webhook or a policy denies one delete, the rest are not attempted, as in v1.34: they see one object at a time.
    let server = call.server;
    let is_reviewed =
        server.webhooks.are_configured(server).await? || server.policies.are_validating(server).await?;
    let at_once = if is_reviewed { 1 } else { CONCURRENCY };
    delete_all(&found.records, at_once, |record| delete_one(call, record, &options).boxed()).await?;
    list::respond(call, found).await
}

/// Deletes objects, `at_once` of them concurrently. After a failure no further delete starts, but those in progress
/// finish.
pub(crate) async fn delete_all<'r>(
    records: &'r [Arc<Record>],
    at_once: usize,
    delete: impl Fn(&'r Arc<Record>) -> BoxFuture<'r, Result<(), Status>>,
) -> Result<(), Status> {
    let mut rest = records.iter();
    let mut under_way = FuturesUnordered::new();
    let mut outcome = Ok(());
    loop {
        while outcome.is_ok()
            && under_way.len() < at_once
            && let Some(record) = rest.next()
        {
            under_way.push(delete(record));
        }
        match under_way.next().await {
            Some(one) => outcome = outcome.and(one),
            None => return outcome,
        }
    }
}

async fn delete_one(call: &Call<'_>, record: &Arc<Record>, options: &DeleteOptions) -> Result<(), Status> {
    call.check_awaited()?;
    let name = name_of(record).to_string();
    let namespace = Some(namespace_of(record)).filter(|_| call.served.kind.is_namespaced());
    let one = Call { namespace, ..*call };
    match delete::remove(&one, &name, record.clone(), options).await {
        Err(status) if !status.is_not_found() => Err(status),
        _ => Ok(()),
    }
}
