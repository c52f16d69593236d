//! ValidatingAdmissionPolicy: user-defined validation rules in CEL.
//!
//! A policy defines which requests it applies to and what must be true; its bindings define where it is enforced, with
//! which params, and what happens on failure. The response reports the first denial.

pub(super) mod authorizer;
mod compiled;
pub(super) mod matching;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint_store::{ListOptions, Record};

use super::attributes::VersionedAttributes;
use super::{Plugin, Review};
use crate::json::Json;
use crate::kinds::selector;
use crate::metadata;
use crate::status::{Cause, Status};
pub(super) use compiled::Conditions;
use compiled::{Compiled, Decision, Evaluated};
use matching::Matched;

/// Enforces the policies in the cluster.
#[derive(Default)]
pub struct ValidatingAdmissionPolicy {
    /// Compiled policies by name, with their revisions; never more than there are policies.
    compiled: Mutex<BTreeMap<String, (u64, Arc<Compiled>)>>,
}

pub(super) const GROUP: &str = "admissionregistration.k8s.io";
const POLICIES: &str = "validatingadmissionpolicies";
const BINDINGS: &str = "validatingadmissionpolicybindings";
/// Groups whose resources policies are not evaluated for: their own, and reviews of tokens and access.
const EXEMPT: [&str; 3] = [GROUP, "authentication.k8s.io", "authorization.k8s.io"];

/// A denial by a policy.
struct Denial {
    policy: String,
    binding: String,
    reason: String,
    message: String,
}

impl Plugin for ValidatingAdmissionPolicy {
    /// Includes webhook configurations, which webhooks do not handle.
    fn handles(&self, review: &Review<'_>) -> bool {
        let kind = &review.served.kind;
        !EXEMPT.contains(&kind.group.as_str()) || kind.plural.ends_with("webhookconfigurations")
    }

    fn handles_connections(&self) -> bool {
        true
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let policies = records(review, POLICIES).await?;
        if policies.is_empty() {
            return Ok(());
        }
        let about = VersionedAttributes::new(review, object, old).await?;
        let bindings = review.list(GROUP, BINDINGS, None).await?;
        let mut denials = Vec::new();
        for record in &policies {
            let policy = self.policy(record);
            match matching::matched(&policy.constraints, &about) {
                Some(Matched::Exactly) => self.enforce(&policy, &bindings, &about, &mut denials).await?,
                Some(Matched::As(other)) => {
                    let shown = about.shown_as(&other).await?;
                    self.enforce(&policy, &bindings, &shown, &mut denials).await?;
                }
                None => {}
            }
        }
        self.forget(&policies);
        match denials.into_iter().next() {
            Some(denial) => Err(denial.status(review, object.or(old))),
            None => Ok(()),
        }
    }
}

async fn records(review: &Review<'_>, plural: &str) -> Result<Vec<Arc<Record>>, Status> {
    let registry = review.server.registry.snapshot();
    let Some(served) = registry.resource(GROUP, "v1", plural) else { return Ok(Vec::new()) };
    let page = review.server.store.list(&served.resource.all(), ListOptions::default()).await;
    Ok(page.map_err(|why| review.server.refusal(why))?.records)
}

impl ValidatingAdmissionPolicy {
    /// Returns a compiled policy, recompiling it if it has changed.
    fn policy(&self, record: &Record) -> Arc<Compiled> {
        let name: &str = &record.key.path;
        let mut compiled = self.compiled.lock();
        if let Some((revision, policy)) = compiled.get(name)
            && *revision == record.modified
        {
            return policy.clone();
        }
        let policy: Value = serde_json::from_slice(&record.value).unwrap_or_default();
        let policy = Arc::new(Compiled::new(&policy));
        compiled.insert(name.to_owned(), (record.modified, policy.clone()));
        policy
    }

    fn forget(&self, there: &[Arc<Record>]) {
        let mut compiled = self.compiled.lock();
        if compiled.len() > there.len() {
            compiled.retain(|name, _| there.iter().any(|record| *record.key.path == **name));
        }
    }

    /// Enforces all bindings of a policy that match the request.
    async fn enforce(
        &self,
        policy: &Compiled,
        bindings: &[Value],
        about: &VersionedAttributes<'_>,
        denials: &mut Vec<Denial>,
    ) -> Result<(), Status> {
        let mut noted = Noted::default();
        for binding in bindings.iter().filter(|one| one.at("spec").text("policyName") == policy.name) {
            about.review.check_awaited()?;
            let spec = binding.at("spec");
            let resources = spec.at("matchResources");
            if !resources.is_null() && matching::matched(resources, about).is_none() {
                continue;
            }
            let decisions = match parameters(policy, spec.at("paramRef"), about).await? {
                Ok(parameters) => {
                    let mut decisions = Vec::new();
                    for params in &parameters {
                        about.review.check_awaited()?;
                        let variables = about.variables(params);
                        let evaluated = about.settle(|| policy.evaluate(&variables)).await;
                        decisions.extend(noted.take(evaluated));
                    }
                    decisions
                }
                // Denies the request regardless of the binding's `validationActions`.
                Err(why) => policy.misconfigured(&format!("failed to configure binding: {why}")),
            };
            carry_out(policy, binding, decisions, about.review, denials);
        }
        noted.publish(&policy.name, about.review);
        Ok(())
    }
}

/// A policy's audit annotations: bindings with different params may give a key several values.
#[derive(Default)]
struct Noted(BTreeMap<String, Vec<String>>);

impl Noted {
    /// Collects the annotations and returns the decisions.
    fn take(&mut self, evaluated: Evaluated) -> Vec<Decision> {
        for (key, value) in evaluated.annotations {
            let values = self.0.entry(key).or_default();
            if !values.contains(&value) {
                values.push(value);
            }
        }
        evaluated.decisions
    }

    fn publish(self, policy: &str, review: &Review<'_>) {
        for (key, values) in self.0 {
            review.audit.annotate(&format!("{policy}/{key}"), values.join(", "));
        }
    }
}

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Records a failed validation in the audit event. It holds only one; the first is kept.
fn note_failure(policy: &str, binding: &Value, decision: &Decision, review: &Review<'_>) {
    let failure = format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{},\"validationActions\":{}}}]",
        json!(decision.message),
        json!(policy),
        metadata::of(binding).at("name"),
        decision.index,
        binding.at("spec").at("validationActions"),
    );
    review.audit.annotate(FAILURE, failure);
}

/// Applies the binding's `validationActions` to the failed validations.
fn carry_out(
    policy: &Compiled,
    binding: &Value,
    decisions: Vec<Decision>,
    review: &Review<'_>,
    denials: &mut Vec<Denial>,
) {
    let name = metadata::of(binding).text("name");
    let actions = binding.at("spec").list("validationActions");
    for decision in decisions {
        if !decision.always_denies && actions.iter().any(|action| action == "Warn") {
            review.warnings.add(format!(
                "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{name}': {}",
                policy.name, decision.message
            ));
        }
        if !decision.always_denies && actions.iter().any(|action| action == "Audit") {
            note_failure(&policy.name, binding, &decision, review);
        }
        if decision.always_denies || actions.iter().any(|action| action == "Deny") {
            denials.push(Denial {
                policy: policy.name.clone(),
                binding: name.to_owned(),
                reason: decision.reason,
                message: decision.message,
            });
        }
    }
}

impl Denial {
    fn status(self, review: &Review<'_>, object: Option<&Value>) -> Status {
        let message = format!(
            "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
            self.policy, self.binding, self.message
        );
        let mut status = review.forbidden(object, &message);
        status.add_cause(Cause { message, ..Cause::default() });
        status.code = match self.reason.as_str() {
            "Forbidden" => 403,
            "Unauthorized" => 401,
            "RequestEntityTooLarge" => 413,
            _ => 422,
        };
        status.reason = if self.reason.is_empty() { "Invalid".into() } else { self.reason.into() };
        status
    }
}

/// Returns the params that a binding selects: the policy is evaluated once for each. An optional param that is missing
/// means no evaluation.
async fn parameters(
    policy: &Compiled,
    reference: &Value,
    about: &VersionedAttributes<'_>,
) -> Result<Result<Vec<Value>, String>, Status> {
    let Some((group, version, kind)) = &policy.parameters else { return Ok(Ok(vec![Value::Null])) };
    if reference.is_null() {
        return Ok(Ok(vec![Value::Null]));
    }
    let server = about.review.server;
    let registry = server.registry.snapshot();
    let Some(served) = registry.kind(group, version, kind) else {
        return Ok(Err(format!(
            "failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'"
        )));
    };
    let own = about.review.namespace.unwrap_or_default();
    let namespace = match reference.text("namespace") {
        "" => own,
        namespace => namespace,
    };
    if served.kind.is_namespaced() && namespace.is_empty() {
        let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
        return Ok(Err(why.into()));
    }
    let namespace = Some(namespace).filter(|_| served.kind.is_namespaced());
    let found = match reference.text("name") {
        "" => {
            let page = server.store.list(&served.range(namespace), ListOptions::default()).await;
            let records = page.map_err(|why| server.refusal(why))?.records;
            let all: Vec<Value> =
                records.iter().map(|record| served.decode(record)).collect::<Result<_, _>>()?;
            let wanted = reference.at("selector");
            all.into_iter().filter(|one| selector::matches(wanted, metadata::of(one).at("labels"))).collect()
        }
        name => {
            let record = server.store.get(&served.key(namespace, name), None).await;
            let record = record.map_err(|why| server.refusal(why))?;
            record.map(|record| served.decode(&record)).transpose()?.into_iter().collect::<Vec<_>>()
        }
    };
    Ok(match (found.is_empty(), reference.text("parameterNotFoundAction")) {
        (true, "Deny") => {
            Err("no params found for policy binding with `Deny` parameterNotFoundAction".into())
        }
        _ => Ok(found),
    })
}
