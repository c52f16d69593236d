//! The explainers, by kind. Kinds without one are explained by their conditions.
//!
//! The table drives the dispatch and the reference page.

use crate::inquiry::Inquiry;
use crate::kinds::*;
use crate::model::Node;
use crate::snapshot::Item;
use crate::{
    applications, autoscaling, certificates, claims, conditions, cronjobs, daemonsets, deployments, devices,
    disruption, extension, ingresses, jobs, leases, namespaces, nodes, pods, quota, replicasets, services,
    statefulsets, volumes,
};

type Explain = for<'a> fn(&Inquiry<'a>, &'a Item) -> Node;

/// An explainer of a kind.
pub struct Explainer {
    pub kind: GroupKind,
    /// The module that explains it.
    pub module: &'static str,
    /// Its findings, as a phrase for the reference page.
    pub finds: &'static str,
    explain: Explain,
}

macro_rules! explainers {
    ($($kind:ident => $module:ident::$function:ident, $finds:literal;)*) => {
        /// Every explainer.
        pub static REGISTRY: &[Explainer] = &[$(
            Explainer { kind: $kind, module: stringify!($module), finds: $finds, explain: $module::$function },
        )*];
    };
}

explainers! {
    POD => pods::explain, "scheduling gates, unschedulable pods with the filter and amounts of each node, images, \
        missing configuration, volumes, init containers, sidecars, crashes, probes, readiness gates, evictions, \
        lost nodes";
    DEPLOYMENT => deployments::explain, "paused rollouts, progress deadlines, pods that cannot be created, quota, \
        admission";
    REPLICA_SET => replicasets::explain, "pods that cannot be created or do not become ready";
    REPLICATION_CONTROLLER => replicasets::explain, "pods that cannot be created or do not become ready";
    STATEFUL_SET => statefulsets::explain, "the ordinal that the others wait for, partitions, update on delete, pods \
        that cannot be created";
    DAEMON_SET => daemonsets::explain, "nodes without a ready pod, node selectors that match nothing, update on delete";
    JOB => jobs::explain, "suspension, backoff limits, deadlines, failed indexes, pod failure policies";
    CRON_JOB => cronjobs::explain, "suspension, missed schedules, concurrency policies, time zones, the last job";
    AUTOSCALER => autoscaling::explain, "missing metrics, missing requests, missing targets, bounds, disabled scaling";
    SERVICE => services::explain, "selectors that match no pod with the closest labels, workloads without pods, unready \
        pods, missing EndpointSlices, port names, load balancers";
    INGRESS => ingresses::explain, "missing classes, Services, ports and TLS Secrets";
    CLAIM => claims::explain, "missing classes, provisioners and volumes, sizes, access modes, delayed binding, resizing";
    VOLUME => volumes::explain, "released, failed and unbound volumes";
    ATTACHMENT => volumes::explain_attachment, "volumes that cannot be attached or detached";
    NODE => nodes::explain, "lost nodes, pressure, taints, cordons, drains that a disruption budget blocks";
    NAMESPACE => namespaces::explain, "missing or terminating namespaces";
    QUOTA => quota::explain, "exhausted resources";
    BUDGET => disruption::explain, "budgets that allow no eviction, and the pods that would have to be ready";
    DEFINITION => extension::explain_definition, "names that are not accepted, schemas that are not structural, \
        objects that hold up the deletion";
    API_SERVICE => extension::explain_api_service, "Services and endpoints that are missing or do not respond";
    VALIDATING_WEBHOOKS => extension::explain_webhooks, "Services without endpoints that requests wait for";
    MUTATING_WEBHOOKS => extension::explain_webhooks, "Services without endpoints that requests wait for";
    CERTIFICATE_REQUEST => certificates::explain, "missing approvals, denials, signers that do not run";
    LEASE => leases::explain, "components that no longer renew their lease";
    DEVICE_CLAIM => devices::explain, "missing device classes, claims without an allocation";
    APPLICATION => applications::explain, "unhealthy components, failed and suspended workflow steps, policies";
    WORKFLOW_RUN => applications::explain, "failed and suspended workflow steps";
    GRAPH => conditions::explain, "graphs that are not accepted, kinds that are not ready";
}

/// Returns the explainer of a kind.
pub fn explainer(kind: &GroupKind) -> Option<&'static Explainer> {
    REGISTRY.iter().find(|explainer| explainer.kind == *kind)
}

/// Explains an object by its kind.
pub(crate) fn explain<'a>(inquiry: &Inquiry<'a>, item: &'a Item) -> Node {
    match explainer(&item.kind) {
        Some(explainer) => (explainer.explain)(inquiry, item),
        None => conditions::explain(inquiry, item),
    }
}
