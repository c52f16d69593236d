//! Reconciles a pod: creates its claims, and reserves them once it has a node.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use setpoint::client::{Optional, Patch, Subresource};
use setpoint::metrics::Metrics;
use setpoint::reconcile::ErrorContext;
use setpoint::{
    Cached, Client, EventType, Key, Kind, Lister, ReconcileError, Recorder, UpdateBody, owner::controller_ref,
};

use super::view::{Claim, Consumer, FOR_REQUEST, GeneratedClaim, Named, Pod, Request, Template};
use super::wake::OF_POD;
use setpoint::write_tracker::WriteTracker;

/// The field manager of pod statuses.
const MANAGER: &str = "ResourceClaimController";
/// The maximum length of a claim name's base: a hyphen and five random characters are added, 63 in total.
const BASE: usize = 57;

pub(super) struct Pods {
    pub(super) client: Client,
    pub(super) recorder: Recorder,
    pub(super) pods: Lister<Pod>,
    pub(super) claims: Lister<Claim>,
    pub(super) templates: Lister<Template>,
    /// Created claims that the cache may not show yet, by pod.
    pub(super) own: Arc<WriteTracker<Key>>,
    pub(super) features: Features,
    pub(super) metrics: Metrics,
}

/// The features that templates may use.
#[derive(Clone, Copy)]
pub(super) struct Features {
    pub(super) admin_access: bool,
    pub(super) prioritized_lists: bool,
}

impl Features {
    /// Returns v1.34's message for a disabled feature that a template uses.
    fn missing(self, template: &Template) -> Option<&'static str> {
        let requests = template.spec.spec["devices"]["requests"].as_array().into_iter().flatten();
        for request in requests {
            if !self.admin_access && request["exactly"]["adminAccess"] == true {
                return Some("admin access is requested, but the feature is disabled");
            }
            if !self.prioritized_lists && request["firstAvailable"].is_array() {
                return Some(
                    "template includes a prioritized list of subrequests, but the feature is disabled",
                );
            }
        }
        None
    }
}

impl Pods {
    pub(super) async fn reconcile(&self, key: &Key) -> Result<(), ReconcileError> {
        // A finished pod needs no claim: it would be deleted again at once.
        let may_run = |pod: &Cached<Pod>| !pod.meta().is_being_deleted() && !pod.has_ended();
        let Some(pod) = self.pods.get(key)?.filter(may_run) else {
            self.own.forget(key);
            return Ok(());
        };
        let made = || self.claims.indexed(OF_POD, &pod.meta().uid);
        let Some(made) = self.own.list_if_caught_up(key, made)? else { return Ok(()) };
        let mut given = BTreeMap::new();
        for request in &pod.spec.resource_claims {
            match self.claim_for(&pod, request, &made).await {
                Ok(Some(name)) => _ = given.insert(request.name.as_str(), name),
                Ok(None) => {}
                Err(error) => {
                    let message = format!("PodResourceClaim {}: {}", request.name, error.report());
                    let (kind, reason) = (Kind::of::<Pod>(), "FailedResourceClaimCreation");
                    self.recorder.event(&kind, pod.object(), EventType::Warning, reason, &message);
                    return Err(error);
                }
            }
        }
        if !given.is_empty() {
            self.write_status(&pod, given).await?;
        }
        if pod.spec.node_name.is_empty() {
            // The scheduler reserves claims for unscheduled pods.
            return Ok(());
        }
        self.reserve(&pod).await
    }

    /// Returns the name of a claim that is missing in the pod's status, creating the claim if necessary. `None` if
    /// nothing is missing.
    async fn claim_for(
        &self,
        pod: &Cached<Pod>,
        request: &Request,
        made: &[Cached<Claim>],
    ) -> Result<Option<String>, ReconcileError> {
        match pod.claim_of(request) {
            Named::NotNeeded => return Ok(None),
            Named::Claim { name, of_pod } => {
                let claim = self.claims.get(&pod.key().sibling(name))?;
                if claim.is_some_and(|claim| !of_pod || claim.meta().is_controlled_by(&pod.meta().uid)) {
                    return Ok(None);
                }
            }
            Named::NotMadeYet => {}
        }
        let Some(template) = &request.resource_claim_template_name else { return Ok(None) };
        if let Some(claim) = made.iter().find(|claim| claim.request() == Some(&request.name)) {
            return Ok(Some(claim.key().name().to_owned()));
        }
        let found = self.templates.get(&pod.key().sibling(template.as_str()))?;
        let found = found.ok_or_else(|| {
            let missing = format!("resourceclaimtemplate.resource.k8s.io \"{template}\" not found");
            ReconcileError::retry(format!("resource claim template \"{template}\": {missing}"))
        })?;
        if let Some(why) = self.features.missing(&found) {
            return Err(ReconcileError::retry(why));
        }
        let kind = Kind::of::<Claim>();
        let body = claim_of_template(pod, request, &found);
        let created = self.client.create(&kind, pod.key().namespace(), &body).await;
        self.count(created.is_ok(), asks_for_admin(&body["spec"]));
        let created = created.attempting("create ResourceClaim ")?;
        self.own.record_write(pod.key(), &created);
        Ok(Some(created.key().name().to_owned()))
    }

    fn count(&self, succeeded: bool, admin: bool) {
        let labels = [
            ("status", if succeeded { "success" } else { "failure" }),
            ("admin_access", if admin { "true" } else { "false" }),
        ];
        let help =
            "Number of ResourceClaims creation requests, categorized by creation status and admin access";
        self.metrics.count("resourceclaim_controller_creates", help, &labels, 1);
    }

    /// Adds the generated claims to the pod's status.
    async fn write_status(
        &self,
        pod: &Cached<Pod>,
        made: BTreeMap<&str, String>,
    ) -> Result<(), ReconcileError> {
        let known = pod.status.resource_claim_statuses.iter();
        let mut statuses: Vec<GeneratedClaim> =
            known.filter(|given| !made.contains_key(given.name.as_str())).cloned().collect();
        statuses.extend(
            made.into_iter()
                .map(|(name, claim)| GeneratedClaim { name: name.into(), resource_claim_name: Some(claim) }),
        );
        let key = pod.key();
        let body = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": key.name(), "namespace": key.namespace(), "uid": pod.meta().uid},
            "status": {"resourceClaimStatuses": statuses},
        });
        let patch = Patch::Apply { body: body.to_string().into(), manager: MANAGER.to_owned(), force: true };
        let applied = self.client.patch(&Kind::of::<Pod>(), key, Subresource::Status, patch).await;
        applied.optional().map(drop).attempting(format!("update pod {key} ResourceClaimStatuses"))
    }

    async fn reserve(&self, pod: &Cached<Pod>) -> Result<(), ReconcileError> {
        for request in &pod.spec.resource_claims {
            let Named::Claim { name, of_pod } = pod.claim_of(request) else { continue };
            let Some(claim) = self.claims.get(&pod.key().sibling(name))? else { return Ok(()) };
            if of_pod && !claim.meta().is_controlled_by(&pod.meta().uid) {
                let foreign = format!("ResourceClaim {} was not created for pod {}", claim.key(), pod.key());
                return Err(ReconcileError::retry(foreign));
            }
            if claim.lacks(&pod.meta().uid) {
                self.reserve_one(pod, &claim).await?;
            }
        }
        Ok(())
    }

    async fn reserve_one(&self, pod: &Cached<Pod>, claim: &Cached<Claim>) -> Result<(), ReconcileError> {
        let mut consumers = claim.status.reserved_for.clone();
        consumers.push(Consumer {
            api_group: String::new(),
            resource: "pods".into(),
            name: pod.key().name().to_owned(),
            uid: pod.meta().uid.to_string(),
        });
        let edit = UpdateBody::of(claim.object()).set(&["status", "reservedFor"], &consumers);
        let updated = self.client.update(&Kind::of::<Claim>(), claim.key(), Subresource::Status, &edit).await;
        updated.map(drop).attempting(format!("reserve claim {} for pod", claim.key()))
    }
}

/// Whether any request uses admin access.
pub(super) fn asks_for_admin(spec: &Value) -> bool {
    let mut requests = spec["devices"]["requests"].as_array().into_iter().flatten();
    requests.any(|request| request["exactly"]["adminAccess"] == true)
}

fn claim_of_template(pod: &Cached<Pod>, request: &Request, template: &Template) -> Value {
    let given = &template.spec.metadata;
    let mut annotations = given["annotations"].as_object().cloned().unwrap_or_default();
    annotations.insert(FOR_REQUEST.into(), request.name.as_str().into());
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": generate_name(pod.key().name(), &request.name),
            "annotations": annotations,
            "labels": given["labels"],
            "ownerReferences": [controller_ref(&Kind::of::<Pod>(), pod.meta())],
        },
        "spec": template.spec.spec,
    })
}

/// Joins both names, shortening each in proportion if they are too long together.
fn generate_name(pod: &str, request: &str) -> String {
    let whole = format!("{pod}-{request}-");
    if whole.len() <= BASE {
        return whole;
    }
    let part = |name: &str, whole: usize| name[..name.len() * BASE / whole].to_owned();
    let pod_part = part(pod, whole.len());
    format!("{pod_part}-{}", part(request, whole.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_named_after_its_pod_and_request() {
        assert_eq!(generate_name("p", "dev"), "p-dev-");
        let long = generate_name(&"p".repeat(60), &"r".repeat(38));
        assert_eq!(long, format!("{}-{}", "p".repeat(34), "r".repeat(21)));
    }
}
