//! ValidatingAdmissionPolicy: user-defined validation rules in CEL.
//!
//! A policy defines which requests it applies to and what must be true; its bindings define where it is enforced, with
//! which params, and what happens on failure. The response reports the first denial.

mod compiled;

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::matching::{self, Matched};
use super::source::{Binding, Hook, Policy};
use super::{conditions, params};
use crate::admission::attributes::{Unconverted, VersionedAttributes};
use crate::admission::{Plugin, Review};
use crate::declared;
use crate::registry::Registry;
use crate::status::{Cause, Status};
pub(super) use compiled::Validations;
use compiled::{Annotation, Decision, Evaluated};

/// Enforces the validating policies in the cluster.
pub struct ValidatingAdmissionPolicy;

/// A denial by a policy.
struct Denial {
    policy: String,
    /// Empty if the policy itself cannot be used.
    binding: String,
    reason: String,
    message: String,
}

impl Plugin for ValidatingAdmissionPolicy {
    fn handles(&self, review: &Review<'_>) -> bool {
        super::handles(review)
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
        let hooks = review.server.policies.validating(review.server).await?;
        if !hooks.iter().any(|hook| matching::may_match(&hook.policy.constraints, review)) {
            return Ok(());
        }
        let about = VersionedAttributes::new(review, object, old).await?;
        let registry = review.server.registry.snapshot();
        let mut denials = Denials::default();
        for hook in hooks.iter() {
            enforce(hook, &about, &registry, &mut denials).await?;
        }
        match denials.0 {
            Some(denial) => Err(denial.status(review, object)),
            None => Ok(()),
        }
    }
}

/// Enforces a policy if it matches a request.
async fn enforce(
    hook: &Hook<Validations>,
    about: &VersionedAttributes<'_>,
    registry: &Registry,
    denials: &mut Denials,
) -> Result<(), Status> {
    let policy = &*hook.policy;
    let matched = match matching::matched(&policy.constraints, about) {
        Ok(Some(matched)) => matched,
        Ok(None) => return Ok(()),
        Err(why) => {
            denials.misconfigured(policy, None, &why);
            return Ok(());
        }
    };
    if let Err(why) = params::check_kind(policy.params.as_ref(), registry) {
        denials.misconfigured(policy, None, &why);
        return Ok(());
    }
    enforce_bindings(hook, matched, about, registry, denials).await
}

/// Enforces all bindings of a policy that match a request.
async fn enforce_bindings(
    hook: &Hook<Validations>,
    matched: Matched,
    about: &VersionedAttributes<'_>,
    registry: &Registry,
    denials: &mut Denials,
) -> Result<(), Status> {
    let (policy, review) = (&*hook.policy, about.review);
    let mut noted = AuditAnnotations::default();
    let other = match matched {
        Matched::Exactly => None,
        Matched::As(other) => Some(other),
    };
    // Converted for the first binding that evaluates the policy: no other needs it.
    let mut shown = None;
    for binding in &hook.bindings {
        review.check_awaited()?;
        match super::is_bound(binding, about) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                denials.misconfigured(policy, Some(binding), &why);
                continue;
            }
        }
        let found = match params::collect(policy.params.as_ref(), binding, registry, about).await? {
            Ok(found) => found,
            // Denies the request regardless of the binding's `validationActions`.
            Err(why) => {
                denials.misconfigured(policy, Some(binding), &why);
                continue;
            }
        };
        if let Some(other) = other.as_ref().filter(|_| shown.is_none() && !found.is_empty()) {
            match about.shown_as(other).await {
                Ok(made) => shown = Some(made),
                Err(Unconverted::GivenUp(status)) => return Err(*status),
                Err(Unconverted::Failed(why)) => {
                    let why = format!("failed to convert object version: {why}");
                    denials.misconfigured(policy, Some(binding), &why);
                    continue;
                }
            }
        }
        let about = shown.as_ref().unwrap_or(about);
        about.check_namespace()?;
        let mut values = about.variables(&Value::Null);
        for one in &found {
            review.check_time()?;
            values.insert("params", crate::cel::Val::of_json(one));
            let evaluated = evaluate(policy, about, &values).await?;
            apply_actions(policy, binding, evaluated, about, denials, &mut noted);
        }
    }
    noted.publish(&policy.name, review);
    Ok(())
}

/// Evaluates a policy for one of its params.
async fn evaluate(
    policy: &Policy<Validations>,
    about: &VersionedAttributes<'_>,
    values: &crate::cel::Variables,
) -> Result<Evaluated, Status> {
    let compiled = policy.compiled();
    match conditions::hold(policy, &compiled.conditions, about, values).await? {
        Ok(true) => {}
        Ok(false) => return Ok(Evaluated::default()),
        Err(message) => {
            let decision = Decision {
                is_ignored: false,
                reason: String::new(),
                message,
                index: 0,
                took: Duration::ZERO,
            };
            return Ok(Evaluated { decisions: vec![decision], annotations: Vec::new() });
        }
    }
    let clock = &about.review.server.clock;
    about.resolve_checks(|| compiled.evaluate(values, policy.ignores_failures, clock)).await
}

/// The first denial of a request. There may be thousands, one for each param, and only the first is reported.
#[derive(Default)]
struct Denials(Option<Denial>);

impl Denials {
    /// A policy or a binding cannot be used, which denies the request if the failure policy is Fail.
    fn misconfigured(&mut self, policy: &Policy<Validations>, binding: Option<&Binding>, why: &str) {
        if policy.ignores_failures {
            return;
        }
        let what = if binding.is_some() { "binding" } else { "policy" };
        self.add(|| Denial {
            policy: policy.name.clone(),
            binding: binding.map_or_else(String::new, |binding| binding.name.clone()),
            reason: String::new(),
            message: format!("failed to configure {what}: {why}"),
        });
    }

    fn add(&mut self, denial: impl FnOnce() -> Denial) {
        self.0.get_or_insert_with(denial);
    }
}

/// Applies the binding's `validationActions` to the failed validations, and collects the annotations.
fn apply_actions(
    policy: &Policy<Validations>,
    binding: &Binding,
    evaluated: Evaluated,
    about: &VersionedAttributes<'_>,
    denials: &mut Denials,
    noted: &mut AuditAnnotations,
) {
    let (review, metrics) = (about.review, &about.review.server.admission_metrics);
    let denial = |reason: &str, message: &str| Denial {
        policy: policy.name.clone(),
        binding: binding.name.clone(),
        reason: reason.to_owned(),
        message: message.to_owned(),
    };
    for decision in &evaluated.decisions {
        let Decision { message, reason, took, .. } = decision;
        let record = |action: &str| metrics.validated(&policy.name, &binding.name, message, action, *took);
        if decision.is_ignored {
            record("allow");
            continue;
        }
        for action in binding.actions.as_array().into_iter().flatten() {
            match action.as_str().unwrap_or_default() {
                "Deny" => {
                    denials.add(|| denial(reason, message));
                    record("deny");
                }
                "Audit" => {
                    note_failure(&policy.name, binding, decision, review);
                    record("audit");
                }
                "Warn" => {
                    review.warnings.add(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                        policy.name, binding.name
                    ));
                    record("warn");
                }
                _ => {}
            }
        }
    }
    for annotation in evaluated.annotations {
        match annotation {
            Annotation::Value { key, value } => noted.add(key, value),
            Annotation::Error { message, took } => {
                denials.add(|| denial("", &message));
                metrics.validated(&policy.name, &binding.name, &message, "deny", took);
            }
        }
    }
}

/// A policy's audit annotations: bindings with different params may give a key several values.
#[derive(Default)]
struct AuditAnnotations(BTreeMap<String, Vec<String>>);

impl AuditAnnotations {
    fn add(&mut self, key: String, value: String) {
        let values = self.0.entry(key).or_default();
        if !values.contains(&value) {
            values.push(value);
        }
    }

    fn publish(self, policy: &str, review: &Review<'_>) {
        for (key, values) in self.0 {
            review.audit.annotate(&format!("{policy}/{key}"), values.join(", "));
        }
    }
}

const FAILURE: &str = "validation.policy.admission.k8s.io/validation_failure";

/// Records a failed validation in the audit event. It holds only one; the first is kept.
fn note_failure(policy: &str, binding: &Binding, decision: &Decision, review: &Review<'_>) {
    let failure = format!(
        "[{{\"message\":{},\"policy\":{},\"binding\":{},\"expressionIndex\":{},\"validationActions\":{}}}]",
        json!(decision.message),
        json!(policy),
        json!(binding.name),
        decision.index,
        binding.actions,
    );
    review.audit.annotate(FAILURE, declared::escaped(&failure));
}

impl Denial {
    fn status(self, review: &Review<'_>, object: Option<&Value>) -> Status {
        let binding = match self.binding.as_str() {
            "" => String::new(),
            binding => format!(" with binding '{binding}'"),
        };
        let message =
            format!("ValidatingAdmissionPolicy '{}'{binding} denied request: {}", self.policy, self.message);
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
