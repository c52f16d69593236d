//! The params that a binding selects: a policy is evaluated once for each.

use std::sync::Arc;

use serde_json::{Map, Value};
use setpoint_store::{ListOptions, Record};

use super::source::{Binding, ParamKind};
use crate::admission::Review;
use crate::admission::attributes::VersionedAttributes;
use crate::facts::Facts;
use crate::json::Json;
use crate::kinds::selector;
use crate::registry::{Registry, Served};
use crate::status::Status;

/// Fails if the kind of a policy's params is not served.
pub(super) fn check_kind(kind: Option<&ParamKind>, registry: &Registry) -> Result<(), String> {
    match kind {
        Some(ParamKind { group, version, kind }) if registry.kind(group, version, kind).is_none() => {
            Err(format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"))
        }
        _ => Ok(()),
    }
}

/// Returns the params; a single null if the policy or the binding has none. If optional params are missing, there is no
/// evaluation. The inner error is a configuration error.
pub(super) async fn collect(
    kind: Option<&ParamKind>,
    binding: &Binding,
    registry: &Registry,
    about: &VersionedAttributes<'_>,
) -> Result<Result<Vec<Value>, String>, Status> {
    let (reference, review) = (&binding.params, about.review);
    let Some(ParamKind { group, version, kind }) = kind.filter(|_| !reference.is_null()) else {
        return Ok(Ok(vec![Value::Null]));
    };
    let Some(served) = registry.kind(group, version, kind) else {
        return Ok(Err(format!("paramKind kind `{kind}` not known")));
    };
    let namespace = match namespace(reference, served, about.namespace_name()) {
        Ok(namespace) => namespace,
        Err(why) => return Ok(Err(why.into())),
    };
    let found = match reference.text("name") {
        "" => selected(reference.at("selector"), served, namespace, review).await?,
        name => {
            let record = review.server.store.get(&served.key(namespace, name), None).await;
            let record = record.map_err(|why| review.server.refusal(why))?;
            let records = converted(record.into_iter().collect(), served, review).await?;
            records.iter().map(|record| served.decode(record)).collect::<Result<_, _>>()?
        }
    };
    if found.is_empty() && reference.text("parameterNotFoundAction") == "Deny" {
        return Ok(Err("no params found for policy binding with `Deny` parameterNotFoundAction".into()));
    }
    Ok(Ok(found))
}

/// Returns the namespace of the params: the specified one, or the request's.
fn namespace<'a>(
    reference: &'a Value,
    served: &Served,
    own: &'a str,
) -> Result<Option<&'a str>, &'static str> {
    match (reference.text("namespace"), served.kind.is_namespaced(), own) {
        ("", false, _) => Ok(None),
        (_, false, _) => Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`"),
        ("", true, "") => {
            Err("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
        }
        ("", true, own) => Ok(Some(own)),
        (named, true, _) => Ok(Some(named)),
    }
}

async fn selected(
    wanted: &Value,
    served: &Arc<Served>,
    namespace: Option<&str>,
    review: &Review<'_>,
) -> Result<Vec<Value>, Status> {
    let page = review.server.store.list(&served.range(namespace), ListOptions::default()).await;
    let records = page.map_err(|why| review.server.refusal(why))?.records;
    let records = converted(records, served, review).await?;
    let is_wanted = |record: &Record| selector::matches(wanted, &labels(record, served));
    records.iter().filter(|record| is_wanted(record)).map(|record| served.decode(record)).collect()
}

/// Returns params in the version of their kind.
async fn converted(
    records: Vec<Arc<Record>>,
    served: &Arc<Served>,
    review: &Review<'_>,
) -> Result<Vec<Arc<Record>>, Status> {
    tokio::select! {
        biased;
        converted = review.server.conversions.records(served, records) => converted,
        given_up = review.given_up() => Err(given_up),
    }
}

fn labels(record: &Record, served: &Served) -> Value {
    let pairs = Facts::of(record, served).labels.iter();
    Value::Object(pairs.map(|(key, value)| (key.to_string(), (**value).into())).collect::<Map<_, _>>())
}
