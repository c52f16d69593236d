//! Pod Security admission: which pods a namespace accepts, according to its labels.
//!
//! The enforce level applies to pods; the warn level applies to pods and to workloads that create them. When a
//! namespace's enforce level rises, the response warns about existing pods that violate it. Namespaces without labels
//! have the configured policy; exempt namespaces, users and runtime classes have none.

mod checks;
mod configuration;
mod policy;

use serde_json::Value;
use setpoint_store::ListOptions;

use super::{Operation, Plugin, Review};
use crate::field::Errors;
use crate::json::Json;
use crate::kind::Subresource;
use crate::metadata;
use crate::status::{Named, Status};
pub use configuration::PodSecurityConfiguration;
use policy::{Level, LevelVersion, Policy};

#[derive(Default)]
pub struct PodSecurity(PodSecurityConfiguration);

impl PodSecurity {
    pub fn new(configuration: PodSecurityConfiguration) -> Self {
        Self(configuration)
    }
}

/// Maximum number of pods to check when a namespace's enforce level rises, as in v1.34.
const PODS_TO_CHECK: usize = 3000;

/// The kinds of objects this plugin handles.
enum PolicyTarget {
    Namespace,
    Pod,
    /// A workload, with the path of its pod template.
    UpdatedObjectInfo(&'static [&'static str]),
}

fn concern(review: &Review<'_>) -> Option<PolicyTarget> {
    let kind = &review.served.kind;
    let is_whole = review.subresource.is_none();
    let changes_pod =
        matches!(review.subresource, None | Some(Subresource::EphemeralContainers | Subresource::Resize));
    Some(match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") if is_whole => PolicyTarget::Namespace,
        ("", "pods") if changes_pod => PolicyTarget::Pod,
        ("", "podtemplates") if is_whole => PolicyTarget::UpdatedObjectInfo(&["template"]),
        ("batch", "cronjobs") if is_whole => {
            PolicyTarget::UpdatedObjectInfo(&["spec", "jobTemplate", "spec", "template"])
        }
        ("", "replicationcontrollers") | ("batch", "jobs") if is_whole => {
            PolicyTarget::UpdatedObjectInfo(TEMPLATE)
        }
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") if is_whole => {
            PolicyTarget::UpdatedObjectInfo(TEMPLATE)
        }
        _ => return None,
    })
}

const TEMPLATE: &[&str] = &["spec", "template"];

impl Plugin for PodSecurity {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.operation != Operation::Delete && concern(review).is_some()
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(object), Some(concern)) = (object, concern(review)) else { return Ok(()) };
        match concern {
            PolicyTarget::Namespace => self.check_namespace(review, object, old).await,
            _ if self.is_exempt(review) => Ok(()),
            PolicyTarget::Pod => self.check_pod(review, object, old).await,
            PolicyTarget::UpdatedObjectInfo(path) => {
                let template = path.iter().fold(object, |object, field| object.at(field));
                self.check_template(review, template).await
            }
        }
    }
}

impl PodSecurity {
    /// Reads the policy from the labels of the request's namespace. `None` if the namespace does not exist.
    async fn policy_of(&self, review: &Review<'_>) -> Result<Option<(Policy, Errors)>, Status> {
        let (server, namespace) = (review.server, review.namespace.unwrap_or_default());
        let registry = server.registry.snapshot();
        let Some(served) = registry.resource("", "v1", "namespaces") else { return Ok(None) };
        let found = server.store.get(&served.key(None, namespace), None).await;
        let Some(record) = found.map_err(|why| server.refusal(why))? else { return Ok(None) };
        let facts = crate::facts::Facts::of(&record, served);
        Ok(Some(Policy::read(self.0.defaults, |label| facts.label(label))))
    }

    /// Whether a request is exempt by its namespace or its user.
    fn is_exempt(&self, review: &Review<'_>) -> bool {
        let exemptions = &self.0.exemptions;
        let by = match review.namespace.is_some_and(|namespace| exemptions.has_namespace(namespace)) {
            true => "namespace",
            false if exemptions.has_user(&review.user.name) => "user",
            false => return false,
        };
        review.audit.annotate(EXEMPT, by.to_owned());
        true
    }

    /// Whether a pod is exempt by its runtime class.
    fn is_exempt_class(&self, review: &Review<'_>, pod: &Value) -> bool {
        let is_exempt = self.0.exemptions.has_runtime_class(pod.at("spec").text("runtimeClassName"));
        if is_exempt {
            review.audit.annotate(EXEMPT, "runtimeClass".to_owned());
        }
        is_exempt
    }

    async fn check_pod(&self, review: &Review<'_>, pod: &Value, old: Option<&Value>) -> Result<(), Status> {
        let Some((policy, errors)) = self.policy_of(review).await? else {
            let namespace = review.namespace.unwrap_or_default();
            let status = Status::internal(format_args!("failed to lookup namespace {namespace:?}"));
            review.audit.annotate(ERROR, format!("{}: namespaces {namespace:?} not found", status.message));
            return Err(status);
        };
        if errors.is_empty() && policy.is_fully_privileged() {
            review.audit.annotate(ENFORCED, Policy::default().enforce.to_string());
            return Ok(());
        }
        if old.is_some_and(|old| !changes_images(pod, old)) || self.is_exempt_class(review, pod) {
            return Ok(());
        }
        review.audit.annotate(ENFORCED, policy.enforce.to_string());
        note(review, pod, policy.audit, &errors);
        enforce(review, pod, policy.enforce)?;
        warn(review, pod, policy.warn);
        Ok(())
    }

    async fn check_template(&self, review: &Review<'_>, template: &Value) -> Result<(), Status> {
        let Some((policy, errors)) = self.policy_of(review).await? else {
            let namespace = review.namespace.unwrap_or_default();
            let why = format!("failed to lookup namespace {namespace:?}: namespaces {namespace:?} not found");
            review.audit.annotate(ERROR, why);
            return Ok(());
        };
        let says_nothing = policy.warn.level == Level::Privileged
            && policy.audit.level == Level::Privileged
            && errors.is_empty();
        if !template.is_null() && !says_nothing && !self.is_exempt_class(review, template) {
            note(review, template, policy.audit, &errors);
            warn(review, template, policy.warn);
        }
        Ok(())
    }

    async fn check_namespace(
        &self,
        review: &Review<'_>,
        namespace: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let read = |namespace: &Value| {
            let labels = metadata::of(namespace).at("labels").clone();
            Policy::read(self.0.defaults, |label| {
                labels.get(label).and_then(Value::as_str).map(str::to_owned)
            })
        };
        let (policy, errors) = read(namespace);
        let before = old.map(read);
        let are_old = before.as_ref().is_some_and(|(_, old_errors)| *old_errors == errors);
        let name = metadata::of(namespace).text("name");
        if !errors.is_empty() && !are_old {
            return Err(Status::invalid(Named::kind(&review.served.kind), name, &errors));
        }
        let is_exempt = self.0.exemptions.has_namespace(name);
        let Some((before, _)) = before else {
            if is_exempt {
                self.warn_of_exemption(review, namespace, &policy);
            }
            return Ok(());
        };
        let (new, old) = (policy.enforce, before.enforce);
        let rises = new != old
            && new.level != Level::Privileged
            && !(new.version == old.version && new.level <= old.level);
        match rises {
            true if is_exempt => self.warn_of_exemption(review, namespace, &policy),
            true => self.warn_of_pods(review, name, new).await?,
            false => {}
        }
        Ok(())
    }

    /// Warns that the labels of an exempt namespace have no effect.
    fn warn_of_exemption(&self, review: &Review<'_>, namespace: &Value, policy: &Policy) {
        if policy.is_fully_privileged() || policy.is_equivalent(&self.0.defaults) {
            return;
        }
        let labels = metadata::of(namespace).at("labels");
        let modes = [("enforce", policy.enforce), ("audit", policy.audit), ("warn", policy.warn)];
        let is_set = |mode: &str| {
            let label = format!("{}{mode}", policy::PREFIX);
            labels.has(&label) || labels.has(&format!("{label}-version"))
        };
        let set = modes.into_iter().filter(|(mode, level)| level.level != Level::Privileged && is_set(mode));
        let set: Vec<String> = set.map(|(mode, level)| format!("{mode}={level}")).collect();
        review.warnings.add(format!(
            "namespace {:?} is exempt from Pod Security, and the policy ({}) will be ignored",
            metadata::of(namespace).text("name"),
            set.join(", ")
        ));
    }
}

const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ERROR: &str = "pod-security.kubernetes.io/error";
const EXEMPT: &str = "pod-security.kubernetes.io/exempt";

/// Annotates the audit event with a pod's violations and with invalid labels.
fn note(review: &Review<'_>, pod: &Value, level: LevelVersion, errors: &Errors) {
    if !errors.is_empty() {
        review.audit.annotate(ERROR, format!("Failed to parse policy: {errors}"));
    }
    let violations = checks::violations(level, pod);
    if !violations.is_empty() {
        let detail = checks::in_detail(&violations);
        review.audit.annotate(VIOLATIONS, format!("would violate PodSecurity \"{level}\": {detail}"));
    }
}

fn enforce(review: &Review<'_>, pod: &Value, level: LevelVersion) -> Result<(), Status> {
    let violations = checks::violations(level, pod);
    if violations.is_empty() {
        return Ok(());
    }
    let why = format!("violates PodSecurity \"{level}\": {}", checks::in_detail(&violations));
    Err(review.forbidden(Some(pod), why))
}

fn warn(review: &Review<'_>, pod: &Value, level: LevelVersion) {
    let violations = checks::violations(level, pod);
    if !violations.is_empty() {
        let detail = checks::in_detail(&violations);
        review.warnings.add(format!("would violate PodSecurity \"{level}\": {detail}"));
    }
}

/// Whether an update changes container images: nothing else affects the verdict on an existing pod.
fn changes_images(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value, list: &str| {
        let containers = pod.at("spec").list(list).iter();
        containers.map(|container| container.text("image").to_owned()).collect::<Vec<_>>()
    };
    let in_place = ["containers", "initContainers"].iter().any(|list| images(new, list) != images(old, list));
    let known = old.at("spec").list("ephemeralContainers");
    let is_known = |container: &Value| {
        let same = |other: &&Value| other.text("name") == container.text("name");
        known.iter().find(same).is_some_and(|other| other.text("image") == container.text("image"))
    };
    in_place || !new.at("spec").list("ephemeralContainers").iter().all(is_known)
}

impl PodSecurity {
    /// Warns about the pods in a namespace that violate its new level.
    async fn warn_of_pods(
        &self,
        review: &Review<'_>,
        namespace: &str,
        level: LevelVersion,
    ) -> Result<(), Status> {
        let server = review.server;
        let registry = server.registry.snapshot();
        let Some(served) = registry.resource("", "v1", "pods") else { return Ok(()) };
        let options = ListOptions { limit: PODS_TO_CHECK, ..ListOptions::default() };
        let page = server.store.list(&served.range(Some(namespace)), options).await;
        let page = page.map_err(|why| server.refusal(why))?;
        // Maps violations to the first pod that has them and the number of such pods.
        let mut found: std::collections::BTreeMap<String, (String, usize)> =
            std::collections::BTreeMap::new();
        for record in &page.records {
            let pod = served.decode_bare(record)?;
            if self.0.exemptions.has_runtime_class(pod.at("spec").text("runtimeClassName")) {
                continue;
            }
            let violations = checks::violations(level, &pod);
            if !violations.is_empty() {
                let reasons: Vec<&str> =
                    violations.iter().map(|violation| violation.reason.as_ref()).collect();
                let entry = found.entry(reasons.join(", "));
                let (_, count) = entry.or_insert_with(|| (metadata::of(&pod).text("name").to_owned(), 0));
                *count += 1;
            }
        }
        let total = page.records.len() + page.remaining;
        if page.remaining > 0 {
            review.warnings.add(format!(
                "new PodSecurity enforce level only checked against the first {} of {total} existing pods",
                page.records.len()
            ));
        }
        if !found.is_empty() {
            review.warnings.add(format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{level}\""
        ));
        }
        let mut warnings: Vec<String> = found
            .into_iter()
            .map(|(reasons, (pod, count))| match count {
                1 => format!("{pod}: {reasons}"),
                2 => format!("{pod} (and 1 other pod): {reasons}"),
                _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
            })
            .collect();
        warnings.sort();
        warnings.into_iter().for_each(|warning| review.warnings.add(warning));
        Ok(())
    }
}
