//! Request handlers for objects.

mod apply;
pub(crate) mod binding;
mod computed;
mod connect;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod delete_collection;
pub(crate) mod eviction;
pub(crate) mod get;
pub(crate) mod internal_write;
pub(crate) mod list;
mod list_body;
pub(crate) mod ownership;
pub(crate) mod patch;
mod pod_condition;
pub(crate) mod respond;
pub(crate) mod review;
pub(crate) mod scale;
mod size;
pub(crate) mod token_request;
pub(crate) mod update;
pub(crate) mod watch;

pub(crate) use apply::is_apply;

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::{HeaderMap, Response};
use jiff::Timestamp;
use serde_json::Value;
use setpoint_store::{Key, Record, Revision};

use crate::apply::ManagedFields;
use crate::auth::User;
use crate::body::Body;
use crate::chain::Context;
use crate::kind::{Subresource, Verb};
use crate::names;
use crate::negotiate::Output;
use crate::query::Query;
use crate::registry::Served;
use crate::server::Server;
use crate::status::Status;
use crate::strategy::Creation;

/// The conflict message for a client with an outdated copy of an object.
pub(crate) const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// Maximum attempts of a write to an object that keeps changing. Every failure means that another writer succeeded, so
/// this many writers would have to write one object at once.
const ATTEMPTS: usize = 128;

/// A resource request, with everything needed to handle it.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Server,
    pub(crate) user: &'a User,
    pub(crate) served: &'a Arc<Served>,
    pub(crate) subresource: Option<Subresource>,
    /// `None` for cluster-scoped kinds, and for all namespaces.
    pub(crate) namespace: Option<&'a str>,
    pub(crate) name: Option<&'a str>,
    /// The path after a subresource that accepts one, with its leading slash.
    pub(crate) subpath: &'a str,
    pub(crate) query: &'a Query<'a>,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    pub(crate) output: Output,
    pub(crate) context: &'a Context,
    pub(crate) now: Timestamp,
}

/// The result of a write.
pub(crate) enum Outcome {
    Stored(Arc<Record>),
    /// The object that a dry run would have stored, or one that was removed.
    Unstored(Value),
}

impl<'a> Call<'a> {
    /// Returns the name in the path.
    pub(crate) fn name(&self) -> Result<&'a str, Status> {
        let name = self.name.filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| Status::bad_request("name must be provided"))?;
        let complaints = names::path_segment(name);
        if complaints.is_empty() {
            return Ok(name);
        }
        Err(Status::bad_request(format!("Name parameter invalid: {name:?}: {}", complaints.join(";"))))
    }

    /// Returns the store key of the object in the path.
    pub(crate) fn key(&self) -> Result<Key, Status> {
        let name = self.name()?;
        match self.namespace {
            Some(namespace @ ("." | "..")) => {
                let key = format!("/{}/{namespace}/{name}", self.served.kind.plural);
                Err(Status::unknown(format!("invalid key: {key:?}")))
            }
            namespace => Ok(self.served.key(namespace, name)),
        }
    }

    /// Fails if the client no longer waits for the response.
    pub(crate) fn check_awaited(&self) -> Result<(), Status> {
        self.context.check_awaited(&self.server.clock)
    }

    /// Like `check_awaited`, but only for retries: the first attempt follows a check of its own.
    pub(crate) fn check_retry(&self, attempt: usize) -> Result<(), Status> {
        if attempt == 0 { Ok(()) } else { self.check_awaited() }
    }

    pub(crate) fn not_found(&self, name: &str) -> Status {
        Status::not_found(self.served.named(), name)
    }

    /// Returns a record in the requested version. Only conversion webhooks make this wait.
    pub(crate) async fn shown(&self, record: &Arc<Record>) -> Result<Arc<Record>, Status> {
        if !self.served.needs_conversion(record) {
            return Ok(record.clone());
        }
        self.context.while_awaited(self.server.conversions.record(self.served, record)).await
    }

    /// Returns records in the requested version.
    pub(crate) async fn all_shown(&self, records: Vec<Arc<Record>>) -> Result<Vec<Arc<Record>>, Status> {
        if !self.served.is_converted_by_webhook() {
            return Ok(records);
        }
        self.context.while_awaited(self.server.conversions.records(self.served, records)).await
    }

    /// Returns an object as it would be shown had it been stored, with its managed fields.
    pub(crate) async fn as_if_stored(&self, object: Value, fields: &ManagedFields) -> Result<Value, Status> {
        let conversions = &self.server.conversions;
        let shown = conversions.as_if_stored(self.served, object, fields);
        Ok(fields.inside(self.context.while_awaited(shown).await?))
    }

    /// Reads the object in the path, with every change that was acknowledged before.
    pub(crate) async fn record(&self) -> Result<Arc<Record>, Status> {
        let at = self.latest().await?;
        self.record_at(at).await
    }

    /// Reads the object in the path at a revision, or as this server last saw it.
    pub(crate) async fn record_at(&self, at: Option<Revision>) -> Result<Arc<Record>, Status> {
        let name = self.name()?;
        let found = self.server.store.get(&self.key()?, at).await.map_err(|why| self.server.refusal(why))?;
        found.ok_or_else(|| self.not_found(name))
    }

    /// Returns where to read to see every change that was acknowledged before. `None`: what this server last saw.
    pub(crate) async fn latest(&self) -> Result<Option<Revision>, Status> {
        self.server.store.latest().await.map_err(|why| self.server.refusal(why))
    }
}

/// Whether this path supports the verb.
pub(crate) fn allows(
    served: &Served,
    subresource: Option<Subresource>,
    verb: Verb,
    named: bool,
    in_namespace: bool,
) -> bool {
    let Some(subresource) = subresource else {
        let whole_cluster = served.kind.is_namespaced() && !in_namespace;
        let fits = match verb {
            Verb::Create => !named,
            Verb::Update | Verb::Patch => named,
            _ => true,
        };
        let reads = matches!(verb, Verb::List | Verb::Watch);
        return served.kind.verbs.contains(&verb) && fits && (!whole_cluster || reads);
    };
    subresource.verbs().contains(&verb)
}

impl Subresource {
    /// Returns the supported verbs.
    pub(crate) const fn verbs(self) -> &'static [Verb] {
        match self {
            Self::Binding | Self::Eviction | Self::Token => &[Verb::Create],
            Self::Finalize => &[Verb::Update],
            Self::Log => &[Verb::Get],
            Self::Attach | Self::Exec | Self::PortForward => &[Verb::Create, Verb::Get],
            Self::Proxy => &[Verb::Create, Verb::Delete, Verb::Get, Verb::Patch, Verb::Update],
            Self::Status | Self::Scale | Self::EphemeralContainers | Self::Resize | Self::Approval => {
                &[Verb::Get, Verb::Patch, Verb::Update]
            }
        }
    }
}

pub(crate) async fn serve(call: &Call<'_>, verb: Verb) -> Result<Response<Body>, Status> {
    if let Some(deprecation) = &call.served.kind.deprecation {
        call.context.warnings.add(deprecation.warning.clone());
        call.context.audit.annotate("k8s.io/deprecated", "true");
        if !deprecation.removed_release.is_empty() {
            call.context.audit.annotate("k8s.io/removed-release", deprecation.removed_release);
        }
        call.served.measured.deprecated_use(call.subresource);
    }
    let answer = execute(call, verb).await;
    let is_write = !matches!(verb, Verb::Get | Verb::List | Verb::Watch);
    if is_write && answer.is_ok() && concerns_definitions(call) {
        call.server.reconcile_definitions().await;
    }
    answer
}

/// Whether a write may change the set of served kinds: a definition, or an object of a kind being deleted.
fn concerns_definitions(call: &Call<'_>) -> bool {
    let kind = &call.served.kind;
    kind.semantics.defines_kinds || kind.custom.as_ref().is_some_and(|custom| custom.is_terminating)
}

/// Returns the work of a verb, boxed: futures of verbs take tens of kilobytes, and each caller would hold and copy the
/// largest of them.
fn execute<'a>(call: &'a Call<'_>, verb: Verb) -> BoxFuture<'a, Result<Response<Body>, Status>> {
    if let Some(objects) = call.served.kind.strategy.computed(call.namespace) {
        return async move { computed::respond(call, verb, objects.await) }.boxed();
    }
    match (call.subresource, verb) {
        (Some(Subresource::Scale), Verb::Get) => scale::get(call).boxed(),
        (Some(Subresource::Scale), Verb::Update) => scale::update(call).boxed(),
        (Some(Subresource::Scale), Verb::Patch) => scale::patch(call).boxed(),
        (Some(Subresource::Binding), _) => binding::create(call).boxed(),
        (Some(to), _) if to.is_connection() => connect::connect(call, to).boxed(),
        (Some(Subresource::Eviction), _) => eviction::create(call).boxed(),
        (Some(Subresource::Token), _) => token_request::create(call).boxed(),
        (_, Verb::Get) => get::get(call).boxed(),
        (_, Verb::List) => list::list(call).boxed(),
        (_, Verb::Watch) => watch::watch(call).boxed(),
        (_, Verb::Create) => match call.served.kind.semantics.creation {
            Creation::Object => create::create(call).boxed(),
            Creation::Binding => binding::create_standalone(call).boxed(),
            Creation::Review(review_kind) => review::create(call, review_kind).boxed(),
        },
        (_, Verb::Update) => update::update(call).boxed(),
        (_, Verb::Patch) => patch::patch(call).boxed(),
        (_, Verb::Delete) => delete::delete(call).boxed(),
        (_, Verb::DeleteCollection) => delete_collection::delete_collection(call).boxed(),
    }
}
