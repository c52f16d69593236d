//! MutatingAdmissionPolicy: user-defined changes in CEL. Active if the feature is enabled.
//!
//! Policies run one after the other, by name, before mutating webhooks; so do the bindings of a policy, its params and
//! its mutations. Each sees the result of the previous one. Matching happens before the first of them runs.

mod compiled;
mod patch;

use std::sync::Arc;

use serde_json::Value;

use super::matching::{self, Matched};
use super::source::{Binding, Hook, Policy};
use super::{conditions, params};
use crate::admission::attributes::{Unconverted, VersionedAttributes};
use crate::admission::{Plugin, Review};
use crate::cel::Val;
use crate::json::Json;
use crate::metadata;
use crate::registry::Served;
use crate::status::{Cause, Status};
pub(super) use compiled::Mutations;
use patch::Failure;

/// Applies the mutating policies in the cluster.
pub struct MutatingAdmissionPolicy;

const FEATURE: &str = "MutatingAdmissionPolicy";

impl Plugin for MutatingAdmissionPolicy {
    fn handles(&self, review: &Review<'_>) -> bool {
        review.server.features.has(FEATURE) && super::handles(review)
    }

    fn handles_connections(&self) -> bool {
        true
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let hooks = review.server.policies.mutating(review.server).await?;
        if !hooks.iter().any(|hook| matching::may_match(&hook.policy.constraints, review)) {
            return Ok(());
        }
        let about = VersionedAttributes::new(review, Some(object), old).await?;
        let mut errors = Errors::default();
        let invocations = invocations(&hooks, &about, &mut errors).await?;
        if !invocations.is_empty() {
            about.check_namespace()?;
            if let Some(changed) = dispatch(&invocations, about, &mut errors).await? {
                review.write_back(object, changed)?;
            }
        }
        errors.status(review, object)
    }
}

/// A policy to apply, with one binding and one of its params.
struct Invocation<'h> {
    policy: &'h Policy<Mutations>,
    binding: &'h Binding,
    /// The version that the policy matches, if it is not the request's.
    version: Option<Arc<Served>>,
    params: Value,
}

impl Invocation<'_> {
    /// Unique among the invocations of a request.
    fn id(&self) -> String {
        let params = metadata::of(&self.params);
        let (namespace, name) = (params.text("namespace"), params.text("name"));
        format!("{}/{}/{namespace}/{name}", self.policy.name, self.binding.name)
    }
}

/// Finds the policies that apply to a request.
async fn invocations<'h>(
    hooks: &'h [Hook<Mutations>],
    about: &VersionedAttributes<'_>,
    errors: &mut Errors,
) -> Result<Vec<Invocation<'h>>, Status> {
    let registry = about.review.server.registry.snapshot();
    let mut invocations = Vec::new();
    for Hook { policy, bindings } in hooks {
        let policy = &**policy;
        let version = match matching::matched(&policy.constraints, about) {
            Ok(Some(Matched::Exactly)) => None,
            Ok(Some(Matched::As(other))) => Some(other),
            Ok(None) => continue,
            Err(why) => {
                errors.misconfigured(policy, None, &why);
                continue;
            }
        };
        if let Err(why) = params::check_kind(policy.params.as_ref(), &registry) {
            errors.misconfigured(policy, None, &why);
            continue;
        }
        for binding in bindings {
            about.review.check_awaited()?;
            let found = match super::is_bound(binding, about) {
                Ok(false) => continue,
                Ok(true) => params::collect(policy.params.as_ref(), binding, &registry, about).await?,
                Err(why) => Err(why),
            };
            match found {
                Ok(found) => invocations.extend(found.into_iter().map(|params| Invocation {
                    policy,
                    binding,
                    version: version.clone(),
                    params,
                })),
                Err(why) => errors.misconfigured(policy, Some(binding), &why),
            }
        }
    }
    Ok(invocations)
}

/// Applies all policies in order. Returns the resulting object in the request's version, if any of them has patched it.
async fn dispatch(
    invocations: &[Invocation<'_>],
    mut about: VersionedAttributes<'_>,
    errors: &mut Errors,
) -> Result<Option<Value>, Status> {
    let review = about.review;
    let round = {
        let mut reinvocation = review.reinvocation.lock();
        let round = reinvocation.round;
        reinvocation.policies.begin(round, &about.object);
        round
    };
    let mut is_patched = false;
    for invocation in invocations {
        review.check_time()?;
        is_patched |= match &invocation.version {
            None => invoke(invocation, &mut about, round, errors).await?,
            Some(version) => match about.shown_as(version).await {
                Ok(mut shown) => {
                    let is_patched = invoke(invocation, &mut shown, round, errors).await?;
                    if is_patched {
                        let requested = shown.as_requested(shown.object.clone()).await;
                        about.object = requested.map_err(|why| why.or(unconvertible))?;
                    }
                    is_patched
                }
                Err(Unconverted::GivenUp(status)) => return Err(*status),
                Err(Unconverted::Failed(why)) => {
                    errors.misconfigured(invocation.policy, None, &why);
                    false
                }
            },
        };
    }
    if is_patched {
        let object = std::mem::take(&mut about.object);
        about.object = about.pruned(object).map_err(unconvertible)?;
    }
    let mut reinvocation = review.reinvocation.lock();
    if is_patched {
        // As in v1.34, whether or not the patches changed anything.
        reinvocation.policies.changed();
        reinvocation.is_needed = true;
    }
    reinvocation.policies.end(&about.object);
    Ok(is_patched.then_some(about.object))
}

/// The error of a result that cannot be converted back.
fn unconvertible(why: String) -> Status {
    Status::internal(format_args!("failed to convert object: {why}"))
}

/// Applies a policy and updates the attributes. Returns whether the object was patched, even if it did not change.
async fn invoke(
    invocation: &Invocation<'_>,
    about: &mut VersionedAttributes<'_>,
    round: u8,
    errors: &mut Errors,
) -> Result<bool, Status> {
    let (policy, review) = (invocation.policy, about.review);
    let compiled = policy.compiled();
    let values = about.variables(&invocation.params);
    match conditions::hold(policy, &compiled.conditions, about, &values).await? {
        Ok(true) => {}
        Ok(false) => return Ok(false),
        Err(why) => {
            errors.failed(invocation, &why);
            return Ok(false);
        }
    }
    let id = invocation.id();
    if !review.reinvocation.lock().policies.is_due(round, &id) {
        return Ok(false);
    }
    let before = about.object.clone();
    let mut is_patched = false;
    for mutation in &compiled.mutations {
        review.check_time()?;
        let began = review.server.clock.instant();
        let outcome = mutate(compiled, mutation, &invocation.params, about).await;
        let took = review.server.clock.instant() - began;
        let message = match &outcome {
            Ok(_) => None,
            Err(Failure::Failed(why)) => Some(why.as_str()),
            Err(Failure::Refused(status)) => Some(status.message.as_str()),
        };
        review.server.admission_metrics.mutated(&policy.name, &invocation.binding.name, message, took);
        match outcome {
            Ok(object) => {
                about.object = object;
                is_patched = true;
            }
            Err(Failure::Failed(why)) => errors.failed(invocation, &why),
            Err(Failure::Refused(status)) => return Err(*status),
        }
    }
    let mut reinvocation = review.reinvocation.lock();
    if before != about.object {
        reinvocation.policies.changed();
        reinvocation.is_needed = true;
    }
    if compiled.is_reinvoked {
        reinvocation.policies.add(id);
    }
    Ok(is_patched)
}

/// Evaluates a mutation of the current object, and returns the resulting object.
async fn mutate(
    compiled: &Mutations,
    mutation: &compiled::Mutation,
    params: &Value,
    about: &VersionedAttributes<'_>,
) -> Result<Value, Failure> {
    let values = about.variables(params);
    let value = about.resolve_checks(|| compiled.evaluate(mutation, &values)).await;
    let value: Val = value.map_err(|status| Failure::Refused(Box::new(status)))??;
    patch::apply(mutation.patch, &value, about)
}

/// Why policies could not be applied, if their failure policy is Fail.
#[derive(Default)]
struct Errors(Vec<Error>);

struct Error {
    message: String,
    reason: Option<&'static str>,
}

impl Errors {
    /// A policy or a binding cannot be used.
    fn misconfigured(&mut self, policy: &Policy<Mutations>, binding: Option<&Binding>, why: &str) {
        let message = match binding {
            Some(binding) => format!(
                "policy '{}' with binding '{}' denied request: failed to configure binding: {why}",
                policy.name, binding.name
            ),
            None => format!("policy {:?} denied request: failed to configure policy: {why}", policy.name),
        };
        self.add(policy, message, None);
    }

    /// A policy failed for this object.
    fn failed(&mut self, invocation: &Invocation<'_>, why: &str) {
        let Invocation { policy, binding, .. } = invocation;
        let message =
            format!("policy '{}' with binding '{}' denied request: {why}", policy.name, binding.name);
        self.add(policy, message, Some("Invalid"));
    }

    fn add(&mut self, policy: &Policy<Mutations>, message: String, reason: Option<&'static str>) {
        if !policy.ignores_failures && self.0.len() < MAX_ERRORS {
            self.0.push(Error { message, reason });
        }
    }

    /// The rejection of the request: the first error, and all of them as causes. The code is 403 regardless of the
    /// reason, as in v1.34.
    fn status(self, review: &Review<'_>, object: &Value) -> Result<(), Status> {
        let Some(first) = self.0.first() else { return Ok(()) };
        let mut status = review.forbidden(Some(object), "admission request denied by policy");
        status.message = first.message.clone();
        if let Some(reason) = first.reason {
            status.reason = reason.into();
        }
        for error in self.0 {
            status.add_cause(Cause { message: error.message, ..Cause::default() });
        }
        Err(status)
    }
}

/// The maximum number of errors that are reported. A policy may have thousands of mutations.
const MAX_ERRORS: usize = 100;
