//! Admission: an ordered chain of small plugins that mutate and check objects before they are stored.

mod attributes;
mod certificates;
mod claim_resize;
mod configuration;
mod converted;
mod default_class;
mod default_tolerations;
mod device_admin_access;
mod escalation;
mod limit_ranger;
mod metrics;
mod namespace_lifecycle;
mod node_certificates;
mod node_pods;
mod node_restriction;
mod node_tokens;
mod pod_security;
pub(crate) mod pod_topology;
mod policy;
mod priority;
mod privileged;
mod reinvocation;
mod resource_quota;
mod runtime_class;
mod selection;
mod service_account;
mod storage_protection;
mod taint_nodes;
pub(crate) mod webhooks;

use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_store::ListOptions;

pub use certificates::{
    CertificateApproval, CertificateSigning, CertificateSubjectRestriction, ClusterTrustBundleAttest,
};
pub use claim_resize::PersistentVolumeClaimResize;
pub use configuration::{AdmissionConfiguration, ConfigurationError};
pub use default_class::{DefaultIngressClass, DefaultStorageClass};
pub use default_tolerations::DefaultTolerationSeconds;
pub use device_admin_access::DeviceAdminAccess;
pub use escalation::RoleEscalation;
pub use limit_ranger::LimitRanger;
pub(crate) use metrics::AdmissionMetrics;
pub use namespace_lifecycle::NamespaceLifecycle;
pub use node_restriction::NodeRestriction;
pub use pod_security::{PodSecurity, PodSecurityConfiguration};
pub use pod_topology::PodTopologyLabels;
pub(crate) use policy::Policies;
pub use policy::{MutatingAdmissionPolicy, ParamRights, ValidatingAdmissionPolicy};
pub use priority::Priority;
pub use privileged::NoPrivilegedContainers;
pub use resource_quota::{ResourceQuota, ResourceQuotaConfiguration};
pub use runtime_class::RuntimeClass;
pub use selection::{
    NODE_RESTRICTION, SelectionError, configured_plugins, default_plugins,
    default_plugins_and_node_restriction, plugins,
};
pub use service_account::ServiceAccount;
pub use storage_protection::StorageObjectInUseProtection;
pub use taint_nodes::TaintNodesByCondition;
pub use webhooks::{MutatingAdmissionWebhook, ValidatingAdmissionWebhook};

use converted::ConvertedObjects;
use reinvocation::Reinvocation;

use crate::apply::ManagedFields;
use crate::audit::Record;
use crate::auth::User;
use crate::chain::{Context, deadline_exceeded};
use crate::json::{Json, JsonMut};
use crate::kind::Subresource;
use crate::metadata;
use crate::options::DeleteOptions;
use crate::query::Query;
use crate::registry::Served;
use crate::rest::{Call, scale};
use crate::server::{Server, Warnings};
use crate::status::Status;

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    /// A connection: exec, attach, port-forward, proxy.
    Connect,
}

/// The request under admission.
pub struct Review<'a> {
    pub server: &'a Server,
    pub user: &'a User,
    pub served: &'a Served,
    pub operation: Operation,
    pub subresource: Option<Subresource>,
    pub namespace: Option<&'a str>,
    /// Empty for a delete collection request.
    pub name: String,
    pub dry_run: bool,
    pub warnings: &'a Warnings,
    pub(crate) audit: &'a Record,
    context: &'a Context,
    /// Whether part of the request has been written: the rest follows even if the client no longer waits.
    is_begun: bool,
    pub(crate) query: &'a Query<'a>,
    pub(crate) deletion: Option<&'a DeleteOptions>,
    /// The managed fields of the new object, which are not in the object itself. Mutating webhooks may change them.
    fields: Mutex<ManagedFields>,
    /// The managed fields of the old object.
    pub(crate) old_fields: ManagedFields,
    reinvocation: Mutex<Reinvocation>,
    /// The new object in other versions.
    converted: Mutex<ConvertedObjects>,
    /// The old object in other versions. Separate, because a lossy conversion may make both look the same.
    converted_old: Mutex<ConvertedObjects>,
}

/// An admission plugin. Mutation runs before validation, checks run after it.
pub trait Plugin: Send + Sync + 'static {
    /// Whether this plugin applies to a request.
    fn handles(&self, review: &Review<'_>) -> bool;

    /// Mutates the object, or rejects it.
    fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (review, object, old);
        std::future::ready(Ok(()))
    }

    /// The same phase of a delete, which has no object to change.
    fn mutate_deletion(
        &self,
        review: &Review<'_>,
        old: &Value,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (review, old);
        std::future::ready(Ok(()))
    }

    /// Rejects the object, or lets it pass. A deletion has no new object.
    fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> impl Future<Output = Result<(), Status>> + Send {
        let _ = (review, object, old);
        std::future::ready(Ok(()))
    }

    /// Whether the plugin handles connections. They have options instead of objects.
    fn handles_connections(&self) -> bool {
        false
    }
}

/// An object-safe [`Plugin`]: the one place where its futures are boxed.
pub trait DynPlugin: Send + Sync + 'static {
    fn handles(&self, review: &Review<'_>) -> bool;

    fn mutate<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>>;

    fn mutate_deletion<'a>(
        &'a self,
        review: &'a Review<'_>,
        old: &'a Value,
    ) -> BoxFuture<'a, Result<(), Status>>;

    fn check<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>>;

    fn handles_connections(&self) -> bool;
}

impl<P: Plugin> DynPlugin for P {
    fn handles(&self, review: &Review<'_>) -> bool {
        Plugin::handles(self, review)
    }

    fn mutate<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(Plugin::mutate(self, review, object, old))
    }

    fn mutate_deletion<'a>(
        &'a self,
        review: &'a Review<'_>,
        old: &'a Value,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(Plugin::mutate_deletion(self, review, old))
    }

    fn check<'a>(
        &'a self,
        review: &'a Review<'_>,
        object: Option<&'a Value>,
        old: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<(), Status>> {
        Box::pin(Plugin::check(self, review, object, old))
    }

    fn handles_connections(&self) -> bool {
        Plugin::handles_connections(self)
    }
}

impl<'a> Review<'a> {
    pub(crate) fn new(call: &'a Call<'_>, operation: Operation, name: String, dry_run: bool) -> Self {
        Self {
            server: call.server,
            user: call.user,
            served: call.served,
            operation,
            subresource: call.subresource,
            namespace: call.namespace,
            name,
            dry_run,
            warnings: &call.context.warnings,
            audit: &call.context.audit,
            context: call.context,
            is_begun: false,
            query: call.query,
            deletion: None,
            fields: Mutex::default(),
            old_fields: ManagedFields::default(),
            reinvocation: Mutex::default(),
            converted: Mutex::default(),
            converted_old: Mutex::default(),
        }
    }

    /// Sets the managed fields of the new and the old object.
    pub(crate) fn with_fields(self, new: &ManagedFields, old: &ManagedFields) -> Self {
        Self { fields: Mutex::new(new.clone()), old_fields: old.clone(), ..self }
    }

    /// Returns the managed fields of the new object.
    pub(crate) fn managed_fields(&self) -> ManagedFields {
        self.fields.lock().clone()
    }

    /// Makes the object of a request what policies or webhooks made of it.
    fn write_back(&self, object: &mut Value, mut changed: Value) -> Result<(), Status> {
        if self.subresource == Some(Subresource::Scale) {
            return scale::write_back(self.served, &self.name, object, &changed);
        }
        self.set_managed_fields(ManagedFields::take_from(&mut changed));
        *object = changed;
        Ok(())
    }

    /// A policy or a webhook has changed who manages the fields. Invalid values are ignored.
    fn set_managed_fields(&self, fields: ManagedFields) {
        match fields.check() {
            Ok(()) => *self.fields.lock() = fields,
            Err(why) => self.warnings.add(format!(
                ".metadata.managedFields was in an invalid state after admission; this could be caused by an outdated \
                 mutating admission controller; please fix your requests: {why}"
            )),
        }
    }

    /// Builds the review for deleting an object, or each object of a collection.
    pub(crate) fn of_deletion(call: &'a Call<'_>, options: &'a DeleteOptions) -> Self {
        let name = call.name.unwrap_or_default().to_owned();
        Self { deletion: Some(options), ..Self::new(call, Operation::Delete, name, options.dry_run) }
    }

    /// The same for a request of which part has been written.
    pub(crate) fn once_started(self) -> Self {
        Self { is_begun: true, ..self }
    }

    /// The options of the request, as policies and webhooks see them. A connection has none.
    pub(crate) fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Connect => return Value::Null,
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        if self.dry_run {
            options.set("dryRun", json!(["All"]));
        }
        match self.deletion {
            Some(deletion) => deletion.write(&mut options),
            None => {
                for field in ["fieldManager", "fieldValidation"] {
                    if let Some(value) = self.query.get(field).filter(|value| !value.is_empty()) {
                        options.set(field, value);
                    }
                }
            }
        }
        options
    }

    /// Whether the request is for this resource itself, not a subresource.
    pub fn is_for(&self, group: &str, plural: &str) -> bool {
        self.served.kind.group == group && self.served.kind.plural == plural && self.subresource.is_none()
    }

    /// Reads a cluster-scoped object.
    pub(crate) async fn find(&self, group: &str, plural: &str, name: &str) -> Result<Option<Value>, Status> {
        self.find_in(group, plural, None, name).await
    }

    /// Reads a namespaced or cluster-scoped object, without its managed fields.
    pub(crate) async fn find_in(
        &self,
        group: &str,
        plural: &str,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, Status> {
        let registry = self.server.registry.snapshot();
        let Some(served) = registry.resource(group, "v1", plural) else { return Ok(None) };
        let found = self.server.store.get(&served.key(namespace, name), None).await;
        let record = found.map_err(|why| self.server.refusal(why))?;
        record.map(|record| served.decode_bare(&record)).transpose()
    }

    /// Lists the objects of a kind by name, without their managed fields.
    pub(crate) async fn list(
        &self,
        group: &str,
        plural: &str,
        namespace: Option<&str>,
    ) -> Result<Vec<Value>, Status> {
        let registry = self.server.registry.snapshot();
        let Some(served) = registry.resource(group, "v1", plural) else { return Ok(Vec::new()) };
        let page = self.server.store.list(&served.range(namespace), ListOptions::default()).await;
        let page = page.map_err(|why| self.server.refusal(why))?;
        page.records.iter().map(|record| served.decode_bare(record)).collect()
    }

    /// Builds the `Forbidden` status for an object. If its name is yet to be generated, uses its `generateName`.
    pub fn forbidden(&self, object: Option<&Value>, why: impl std::fmt::Display) -> Status {
        let metadata = object.map(metadata::of).unwrap_or(&Value::Null);
        let names = [&self.name, metadata.text("name"), metadata.text("generateName"), "Unknown"];
        let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
        Status::forbidden(self.served.named(), name, why)
    }

    pub(crate) async fn mutate(&self, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        let is_ending = self.served.kind.custom.as_ref().is_some_and(|custom| custom.is_terminating);
        if is_ending && self.operation == Operation::Create {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(self.served.named(), &self.name, why));
        }
        self.mutate_once(object, old).await?;
        let is_needed = {
            let mut reinvocation = self.reinvocation.lock();
            reinvocation.round = 1;
            reinvocation.is_needed
        };
        // A policy or a webhook has changed the object: all plugins have another look, and those policies and webhooks
        // that asked for it.
        if is_needed { self.mutate_once(object, old).await } else { Ok(()) }
    }

    async fn mutate_once(&self, object: &mut Value, old: Option<&Value>) -> Result<(), Status> {
        for plugin in self.server.admission.iter().filter(|plugin| self.is_handled_by(&***plugin)) {
            self.check_given_up()?;
            plugin.mutate(self, object, old).await?;
        }
        Ok(())
    }

    fn is_handled_by(&self, plugin: &dyn DynPlugin) -> bool {
        let is_concerned = self.operation != Operation::Connect || plugin.handles_connections();
        !self.context.bypasses_admission && is_concerned && plugin.handles(self)
    }

    /// Runs both phases for a delete.
    pub(crate) async fn admit_deletion(&self, old: &Value) -> Result<(), Status> {
        for plugin in self.server.admission.iter().filter(|plugin| self.is_handled_by(&***plugin)) {
            self.check_given_up()?;
            plugin.mutate_deletion(self, old).await?;
        }
        self.check(None, Some(old)).await
    }

    /// Returns how long the client still waits. `None` if it has no deadline.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        if self.is_begun {
            return None;
        }
        let now = self.server.clock.instant();
        self.context.work_deadline().map(|deadline| deadline.saturating_duration_since(now))
    }

    /// Fails if the client has disconnected, or the handler's time is up.
    pub(crate) fn check_time(&self) -> Result<(), Status> {
        let is_over = self.time_left().is_some_and(|left| left.is_zero());
        if is_over { Err(deadline_exceeded()) } else { self.check_awaited() }
    }

    /// Waits until the client disconnects.
    pub(crate) async fn given_up(&self) -> Status {
        match &self.context.waiting {
            Some(waiting) if !self.is_begun => waiting.cancelled().await,
            _ => std::future::pending().await,
        }
        deadline_exceeded()
    }

    /// Fails if the client no longer waits for the response.
    pub(crate) fn check_awaited(&self) -> Result<(), Status> {
        if self.is_begun { Ok(()) } else { self.context.check_awaited(&self.server.clock) }
    }

    /// Like `check_awaited`, but does not read the clock: for plugins that take no time.
    fn check_given_up(&self) -> Result<(), Status> {
        let is_given_up = !self.is_begun && self.context.is_given_up();
        if is_given_up { Err(deadline_exceeded()) } else { Ok(()) }
    }

    pub(crate) async fn check(&self, object: Option<&Value>, old: Option<&Value>) -> Result<(), Status> {
        for plugin in self.server.admission.iter().filter(|plugin| self.is_handled_by(&***plugin)) {
            self.check_given_up()?;
            plugin.check(self, object, old).await?;
        }
        // The write comes next.
        self.check_awaited()
    }
}
