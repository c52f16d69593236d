//! ValidatingAdmissionPolicy: user-defined validation rules in CEL.
//!
//! A policy defines which requests it applies to and what must be true; its bindings define where it is enforced, with
//! which params, and what happens on failure. The response reports the first denial.

mod authorizer;
mod compiled;
pub(super) mod matching;

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use setpoint_store::{ListOptions, Record};

use super::{Operation, Plugin, Review};
use crate::apply::ManagedFields;
use crate::cel::{Val, Variables};
use crate::json::Json;
use crate::kind::{Kind, Subresource};
use crate::kinds::selector;
use crate::metadata;
use crate::registry::Served;
use crate::rest::scale::scale_of;
use crate::status::{Cause, Status};
use authorizer::Checks;
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
/// API groups exempt from policies and webhooks: their own, and the review APIs.
const EXEMPT: [&str; 3] = [GROUP, "authentication.k8s.io", "authorization.k8s.io"];

/// Whether policies and webhooks apply to a request.
pub(super) fn have_a_say(review: &Review<'_>) -> bool {
    !EXEMPT.contains(&review.served.kind.group.as_str())
}

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
        have_a_say(review) || review.served.kind.plural.ends_with("webhookconfigurations")
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
        let about = About::new(review, object, old).await?;
        let bindings = review.list(GROUP, BINDINGS, None).await?;
        let mut denials = Vec::new();
        for record in &policies {
            let policy = self.policy(record);
            match matching::matched(&policy.constraints, &about) {
                Some(Matched::Exactly) => self.enforce(&policy, &bindings, &about, &mut denials).await?,
                Some(Matched::As(other)) => {
                    self.enforce(&policy, &bindings, &about.shown_as(&other), &mut denials).await?;
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
        about: &About<'_>,
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
    about: &About<'_>,
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

/// Whether this is a scale request, which shows the Scale object, not the scaled object.
fn is_scale(review: &Review<'_>) -> bool {
    review.subresource == Some(Subresource::Scale)
}

/// Whether this is the kind of namespaces, whose own labels apply to themselves.
fn is_namespace(kind: &Kind) -> bool {
    kind.group.is_empty() && kind.plural == "namespaces"
}

/// The request as seen by policies.
pub(super) struct About<'a> {
    pub(super) review: &'a Review<'a>,
    pub(super) object: Value,
    pub(super) old: Value,
    pub(super) namespace: Value,
    /// The version the objects are converted to, if not the request's own.
    shown_as: Option<Arc<Served>>,
    checks: Checks,
}

impl<'a> About<'a> {
    pub(super) async fn new(
        review: &'a Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<Self, Status> {
        let kind = &review.served.kind;
        let whole = |object: Option<&Value>, managed: &ManagedFields| match object {
            Some(object) if is_scale(review) => scale_of(review.served, object).unwrap_or_default(),
            Some(object) => {
                let mut object = object.clone();
                if !managed.is_empty() {
                    managed.put_into(&mut object);
                }
                if let Value::Object(fields) = &mut object {
                    fields.entry("apiVersion").or_insert_with(|| kind.api_version().into());
                    fields.entry("kind").or_insert_with(|| kind.kind.clone().into());
                }
                object
            }
            None => Value::Null,
        };
        let namespace = match review.namespace {
            Some(namespace) => review.find("", "namespaces", namespace).await?.unwrap_or_default(),
            None => Value::Null,
        };
        let (object, old) = (whole(object, &review.fields.0), whole(old, &review.fields.1));
        let checks = Checks::new(review.server.authorizer.clone());
        Ok(Self { review, object, old, namespace, shown_as: None, checks })
    }

    /// Evaluates expressions until all their authorization checks are answered.
    pub(super) async fn settle<T>(&self, evaluate: impl Fn() -> T) -> T {
        self.checks.settle(evaluate).await
    }

    /// Converts the objects to another version.
    fn shown_as(&self, other: &Arc<Served>) -> Self {
        let converted = |object: &Value| match object {
            Value::Null => Value::Null,
            object if is_scale(self.review) => object.clone(),
            object => self.review.served.converted(object, other),
        };
        let (object, old) = (converted(&self.object), converted(&self.old));
        Self {
            review: self.review,
            object,
            old,
            namespace: self.namespace.clone(),
            shown_as: Some(other.clone()),
            checks: self.checks.clone(),
        }
    }

    pub(super) fn operation(&self) -> &'static str {
        match self.review.operation {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
        }
    }

    /// Returns the subresource, as in the request's path.
    pub(super) fn part(&self) -> &'static str {
        self.review.subresource.map_or("", |part| part.name())
    }

    pub(super) fn variables(&self, params: &Value) -> Variables {
        Variables::from([
            ("object", Val::of_json(&self.object)),
            ("oldObject", Val::of_json(&self.old)),
            ("params", Val::of_json(params)),
            ("namespaceObject", Val::of_json(&self.namespace)),
            ("request", Val::of_json(&self.request())),
            ("authorizer", authorizer::authorizer(self)),
            ("authorizer.requestResource", authorizer::request_resource(self)),
        ])
    }

    fn request(&self) -> Value {
        let review = self.review;
        let described = |kind: &Kind| {
            let of_kind = json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
            (of_kind, json!({"group": kind.group, "version": kind.version, "resource": kind.plural}))
        };
        let (mut asked_kind, asked_resource) = described(&review.served.kind);
        let (mut of_kind, resource) = match &self.shown_as {
            Some(other) => described(&other.kind),
            None => (asked_kind.clone(), asked_resource.clone()),
        };
        if is_scale(review) {
            asked_kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
            of_kind = asked_kind.clone();
        }
        let mut user = Map::new();
        user.insert("username".into(), review.user.name.clone().into());
        user.insert("uid".into(), review.user.uid.clone().into());
        user.insert("groups".into(), json!(review.user.groups));
        user.insert("extra".into(), json!(review.user.extra));
        let name = match review.name.as_str() {
            "" => metadata::of(&self.object).text("name"),
            name => name,
        };
        json!({
            "kind": of_kind,
            "resource": resource,
            "subResource": self.part(),
            "requestKind": asked_kind,
            "requestResource": asked_resource,
            "requestSubResource": self.part(),
            "name": name,
            "namespace": if is_namespace(&review.served.kind) { name } else { review.namespace.unwrap_or_default() },
            "operation": self.operation(),
            "userInfo": user,
            "dryRun": review.dry_run,
            "options": review.options(),
        })
    }
}
