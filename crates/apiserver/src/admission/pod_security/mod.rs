//! Pod Security admission: which pods a namespace accepts, according to its labels.
//!
//! The enforce level applies to pods; the warn level applies to pods and to workloads that create them. When a
//! namespace's enforce level rises, the response warns about existing pods that violate it.

mod checks;
mod policy;

use serde_json::Value;
use setpoint_store::ListOptions;

use super::{Operation, Plugin, Review};
use crate::field::Errors;
use crate::json::Json;
use crate::kind::Subresource;
use crate::metadata;
use crate::status::{Named, Status};
use policy::{Level, LevelVersion, Policy};

pub struct PodSecurity;

/// Maximum number of pods to check when a namespace's enforce level rises, as in v1.34.
const PODS_TO_CHECK: usize = 3000;

/// The kinds of objects this plugin handles.
enum Concern {
    Namespace,
    Pod,
    /// A workload, with the path of its pod template.
    Maker(&'static [&'static str]),
}

fn concern(review: &Review<'_>) -> Option<Concern> {
    let kind = &review.served.kind;
    let is_whole = review.subresource.is_none();
    let changes_pod =
        matches!(review.subresource, None | Some(Subresource::EphemeralContainers | Subresource::Resize));
    Some(match (kind.group.as_str(), kind.plural.as_str()) {
        ("", "namespaces") if is_whole => Concern::Namespace,
        ("", "pods") if changes_pod => Concern::Pod,
        ("", "podtemplates") if is_whole => Concern::Maker(&["template"]),
        ("batch", "cronjobs") if is_whole => Concern::Maker(&["spec", "jobTemplate", "spec", "template"]),
        ("", "replicationcontrollers") | ("batch", "jobs") if is_whole => Concern::Maker(TEMPLATE),
        ("apps", "deployments" | "replicasets" | "daemonsets" | "statefulsets") if is_whole => {
            Concern::Maker(TEMPLATE)
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
            Concern::Namespace => check_namespace(review, object, old).await,
            Concern::Pod => check_pod(review, object, old).await,
            Concern::Maker(path) => {
                let (policy, errors) = policy_of(review).await?;
                let template = path.iter().fold(object, |object, field| object.at(field));
                let says_nothing = policy.warn.level == Level::Privileged
                    && policy.audit.level == Level::Privileged
                    && errors.is_empty();
                if !template.is_null() && !says_nothing {
                    note(review, template, policy.audit, &errors);
                    warn(review, template, policy.warn);
                }
                Ok(())
            }
        }
    }
}

/// Reads the policy from the labels of the request's namespace.
async fn policy_of(review: &Review<'_>) -> Result<(Policy, Errors), Status> {
    let (server, namespace) = (review.server, review.namespace.unwrap_or_default());
    let registry = server.registry.snapshot();
    let open = || Ok((Policy::default(), Errors::default()));
    let Some(served) = registry.resource("", "v1", "namespaces") else { return open() };
    let found = server.store.get(&served.key(None, namespace), None).await;
    let Some(record) = found.map_err(|why| server.refusal(why))? else { return open() };
    let facts = crate::facts::Facts::of(&record, served);
    Ok(Policy::read(|label| facts.label(label)))
}

async fn check_pod(review: &Review<'_>, pod: &Value, old: Option<&Value>) -> Result<(), Status> {
    let (policy, errors) = policy_of(review).await?;
    if errors.is_empty() && policy.is_fully_privileged() {
        review.audit.annotate(ENFORCED, Policy::default().enforce.to_string());
        return Ok(());
    }
    if old.is_some_and(|old| !changes_images(pod, old)) {
        return Ok(());
    }
    review.audit.annotate(ENFORCED, policy.enforce.to_string());
    note(review, pod, policy.audit, &errors);
    enforce(review, pod, policy.enforce)?;
    warn(review, pod, policy.warn);
    Ok(())
}

const ENFORCED: &str = "pod-security.kubernetes.io/enforce-policy";
const VIOLATIONS: &str = "pod-security.kubernetes.io/audit-violations";
const ERROR: &str = "pod-security.kubernetes.io/error";

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

async fn check_namespace(review: &Review<'_>, namespace: &Value, old: Option<&Value>) -> Result<(), Status> {
    let read = |namespace: &Value| {
        let labels = metadata::of(namespace).at("labels").clone();
        Policy::read(|label| labels.get(label).and_then(Value::as_str).map(str::to_owned))
    };
    let (policy, errors) = read(namespace);
    let before = old.map(read);
    let are_old = before.as_ref().is_some_and(|(_, old_errors)| *old_errors == errors);
    if !errors.is_empty() && !are_old {
        let of = Named::kind(&review.served.kind);
        return Err(Status::invalid(of, metadata::of(namespace).text("name"), &errors));
    }
    let Some((before, _)) = before else { return Ok(()) };
    let (new, old) = (policy.enforce, before.enforce);
    let rises = new != old
        && new.level != Level::Privileged
        && !(new.version == old.version && new.level <= old.level);
    if rises {
        warn_of_pods(review, metadata::of(namespace).text("name"), new).await?;
    }
    Ok(())
}

/// Warns about the pods in a namespace that violate its new level.
async fn warn_of_pods(review: &Review<'_>, namespace: &str, level: LevelVersion) -> Result<(), Status> {
    let server = review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.resource("", "v1", "pods") else { return Ok(()) };
    let options = ListOptions { limit: PODS_TO_CHECK, ..ListOptions::default() };
    let page = server.store.list(&served.range(Some(namespace)), options).await;
    let page = page.map_err(|why| server.refusal(why))?;
    // Maps violations to the first pod that has them and the number of such pods.
    let mut found: std::collections::BTreeMap<String, (String, usize)> = std::collections::BTreeMap::new();
    for record in &page.records {
        let pod = served.decode_bare(record)?;
        let violations = checks::violations(level, &pod);
        if !violations.is_empty() {
            let reasons: Vec<&str> = violations.iter().map(|violation| violation.reason.as_ref()).collect();
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
    let mut told: Vec<String> = found
        .into_iter()
        .map(|(reasons, (pod, count))| match count {
            1 => format!("{pod}: {reasons}"),
            2 => format!("{pod} (and 1 other pod): {reasons}"),
            _ => format!("{pod} (and {} other pods): {reasons}", count - 1),
        })
        .collect();
    told.sort();
    told.into_iter().for_each(|warning| review.warnings.add(warning));
    Ok(())
}
