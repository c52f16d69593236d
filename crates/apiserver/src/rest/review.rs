//! The review APIs of authentication and authorization. They are evaluated, not stored.

use http::{Response, StatusCode};
use serde_json::{Map, Value, json};

use super::{Call, ownership, respond};
use crate::admission::{Operation, Review};
use crate::auth::rbac::Rule;
use crate::auth::{Attributes, Decision, User, Verdict};
use crate::body::Body;
use crate::declared;
use crate::decode;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::metadata;
use crate::options::{OptionsOf, WriteOptions};
use crate::request::ResourceTarget;
use crate::selector::{LabelSelector, field_term, requirements};
use crate::status::{Named, Status};
use crate::strategy::ReviewKind;
use crate::validation::labels::{self, Values};

pub(crate) async fn create(call: &Call<'_>, review_kind: ReviewKind) -> Result<Response<Body>, Status> {
    let options = WriteOptions::parse(call.query, OptionsOf::Create)?;
    let mut object = decode::object(call, options.field_validation)?;
    metadata::wipe_system_fields(&mut object);
    metadata::normalize_namespace(&mut object, call.namespace)?;
    ownership::note_create(call, &mut object).await?;
    let review = Review::new(call, Operation::Create, String::new(), options.dry_run);
    review.mutate(&mut object, None).await?;
    check(call, review_kind, &object)?;
    review.check(Some(&object), None).await?;
    let answer = match review_kind {
        ReviewKind::SelfSubject => self_subject_review(call, object),
        ReviewKind::Token => token_review(call, object).await,
        ReviewKind::SelfSubjectRules => self_subject_rules_review(call, object).await,
        ReviewKind::SelfSubjectAccess => may(call, call.user, object).await,
        ReviewKind::SubjectAccess | ReviewKind::LocalSubjectAccess => {
            let subject = subject(object.at("spec"));
            may(call, &subject, object).await
        }
    };
    respond::object(call, StatusCode::CREATED, answer)
}

fn check(call: &Call<'_>, review_kind: ReviewKind, object: &Value) -> Result<(), Status> {
    let spec = object.at("spec");
    match review_kind {
        ReviewKind::SelfSubject => return Ok(()),
        ReviewKind::Token if spec.text("token").is_empty() => {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        ReviewKind::Token => return Ok(()),
        ReviewKind::SelfSubjectRules if spec.text("namespace").is_empty() => {
            return Err(Status::bad_request("no namespace on request"));
        }
        ReviewKind::SelfSubjectRules => return Ok(()),
        ReviewKind::SelfSubjectAccess | ReviewKind::SubjectAccess | ReviewKind::LocalSubjectAccess => {}
    }
    let mut errors = Errors::default();
    check_access(review_kind, object, &mut errors);
    // v1.34 omits the kind.
    let of = Named { group: &call.served.kind.group, resource: "" };
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid(of, "", &errors)) }
}

/// Validates an access review.
fn check_access(review_kind: ReviewKind, object: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    let spec = object.at("spec");
    let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    if !resource.is_null() && !other.is_null() {
        let detail = "cannot be specified in combination with resourceAttributes";
        let shown = declared::of(other, &declared::NON_RESOURCE_ATTRIBUTES);
        errors.invalid(&path.child("nonResourceAttributes"), shown, detail);
    }
    if resource.is_null() && other.is_null() {
        let detail = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.invalid(&path.child("resourceAttributes"), Value::Null, detail);
    }
    if review_kind != ReviewKind::SelfSubjectAccess
        && spec.text("user").is_empty()
        && spec.list("groups").is_empty()
    {
        errors.invalid(&path.child("user"), "", "at least one of user or group must be specified");
    }
    let attributes = path.child("resourceAttributes");
    check_selector(resource.at("fieldSelector"), false, &attributes.child("fieldSelector"), errors);
    check_selector(resource.at("labelSelector"), true, &attributes.child("labelSelector"), errors);
    let is_local = review_kind == ReviewKind::LocalSubjectAccess;
    check_metadata(metadata::of(object), is_local, errors);
    if is_local {
        let namespace = resource.text("namespace");
        if !resource.is_null() && namespace != metadata::of(object).text("namespace") {
            errors.invalid(&attributes.child("namespace"), namespace, "must match metadata.namespace");
        }
        if !other.is_null() {
            let detail = "disallowed on this kind of request";
            errors.invalid(&path.child("nonResourceAttributes"), other.clone(), detail);
        }
    }
}

fn check_selector(selector: &Value, of_labels: bool, path: &Path<'_>, errors: &mut Errors) {
    if selector.is_null() {
        return;
    }
    let (raw, requirements) = (selector.text("rawSelector"), selector.list("requirements"));
    match (raw.is_empty(), requirements.is_empty()) {
        (false, false) => {
            let detail = "may not specified at the same time as requirements";
            errors.invalid(&path.child("rawSelector"), raw, detail);
        }
        (true, true) => {
            let detail = format!("when {path} is specified, requirements or rawSelector is required");
            errors.required(&path.child("requirements"), detail);
        }
        _ => {}
    }
    if of_labels {
        labels::requirements(requirements, Values::Checked, &path.child("requirements"), errors);
    }
}

/// Rejects metadata: only the spec of a review matters.
fn check_metadata(metadata: &Value, is_local: bool, errors: &mut Errors) {
    let is_ignored = |field: &str| field == "managedFields" || is_local && field == "namespace";
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(entries) => entries.is_empty(),
        _ => false,
    };
    let mut fields = metadata.as_object().into_iter().flatten();
    if fields.any(|(field, value)| !is_ignored(field) && !is_empty(value)) {
        let detail = if is_local { "must be empty except for namespace" } else { "must be empty" };
        errors.invalid(&Path::root("metadata"), metadata.clone(), detail);
    }
}

/// Returns the user under review.
fn subject(spec: &Value) -> User {
    let texts =
        |list: &[Value]| list.iter().filter_map(Value::as_str).map(Into::into).collect::<Vec<String>>();
    let extra = spec.map("extra").into_iter().flatten();
    let extra = extra
        .map(|(key, values)| (key.clone(), texts(values.as_array().map(Vec::as_slice).unwrap_or_default())));
    User {
        name: spec.text("user").into(),
        uid: spec.text("uid").into(),
        groups: texts(spec.list("groups")),
        extra: extra.collect(),
    }
}

async fn may(call: &Call<'_>, user: &User, mut object: Value) -> Value {
    let spec = object.at("spec");
    let (resource, other) = (spec.at("resourceAttributes"), spec.at("nonResourceAttributes"));
    let (target, ignored) = match resource.is_null() {
        true => (None, Vec::new()),
        false => {
            let (target, ignored) = target(resource);
            (Some(target), ignored)
        }
    };
    let asked = if target.is_some() { resource } else { other };
    let attributes =
        Attributes { user, verb: asked.text("verb"), path: other.text("path"), resource: target.as_ref() };
    let decision = call.server.authorizer.authorize(&attributes).await;
    let status = status(&decision, &ignored);
    object.set("status", status);
    object
}

/// Returns the resource under review, and the errors of selectors that are ignored.
fn target(attributes: &Value) -> (ResourceTarget, Vec<String>) {
    let text = |field: &str| Some(attributes.text(field).to_owned()).filter(|text| !text.is_empty());
    let mut ignored = Vec::new();
    let fields = selector(attributes.at("fieldSelector"), "fieldSelector", field_terms, &mut ignored);
    let labels = selector(attributes.at("labelSelector"), "labelSelector", label_terms, &mut ignored);
    let target = ResourceTarget {
        group: attributes.text("group").into(),
        version: text("version").unwrap_or("*".into()),
        namespace: text("namespace"),
        resource: attributes.text("resource").into(),
        name: text("name"),
        subresource: text("subresource"),
        field_selector: fields,
        label_selector: labels,
        ..ResourceTarget::default()
    };
    (target, ignored)
}

/// Converts a selector to a request's form; drops it unless all its terms can be parsed.
fn selector(
    written: &Value,
    name: &str,
    terms: fn(&Value) -> Vec<Option<String>>,
    ignored: &mut Vec<String>,
) -> String {
    let found = terms(written);
    let parsed: Vec<&str> = found.iter().flatten().map(String::as_str).collect();
    let how = match parsed.len() {
        all if all == found.len() => None,
        0 => Some("ignored"),
        _ => Some("partially ignored"),
    };
    ignored.extend(how.map(|how| format!("spec.resourceAttributes.{name} {how} due to parse error")));
    parsed.join(",")
}

fn field_terms(written: &Value) -> Vec<Option<String>> {
    let raw = written.text("rawSelector");
    if !raw.is_empty() {
        return vec![requirements(raw).ok().map(|_| raw.to_owned())];
    }
    let term = |requirement: &Value| {
        let [Value::String(value)] = requirement.list("values") else { return None };
        let equal = match requirement.text("operator") {
            "In" => true,
            "NotIn" => false,
            _ => return None,
        };
        Some(field_term(requirement.text("key"), equal, value))
    };
    written.list("requirements").iter().map(term).collect()
}

fn label_terms(written: &Value) -> Vec<Option<String>> {
    let parsed = |text: String| LabelSelector::parse(&text).is_ok().then_some(text);
    let raw = written.text("rawSelector");
    if !raw.is_empty() {
        return vec![parsed(raw.to_owned())];
    }
    let term = |requirement: &Value| {
        let key = requirement.text("key");
        let values: Option<Vec<&str>> = requirement.list("values").iter().map(Value::as_str).collect();
        let values = values?.join(",");
        parsed(match requirement.text("operator") {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            "DoesNotExist" => format!("!{key}"),
            _ => return None,
        })
    };
    written.list("requirements").iter().map(term).collect()
}

fn status(decision: &Decision, ignored: &[String]) -> Value {
    let mut status = json!({"allowed": decision.is_allowed()});
    if decision.verdict == Verdict::Deny {
        status.set("denied", true);
    }
    if !decision.reason().is_empty() {
        status.set("reason", decision.reason());
    }
    let errors: Vec<&str> = decision.error.iter().chain(ignored).map(String::as_str).collect();
    if !errors.is_empty() {
        status.set("evaluationError", errors.join("; "));
    }
    status
}

async fn self_subject_rules_review(call: &Call<'_>, object: Value) -> Value {
    let namespace = object.at("spec").text("namespace");
    let held = call.server.authorizer.rules(call.user, Some(namespace)).await;
    let (about_objects, about_paths): (Vec<&Rule>, Vec<&Rule>) =
        held.rules.iter().partition(|rule| rule.paths.is_empty());
    let mut status = json!({
        "resourceRules": about_objects,
        "nonResourceRules": about_paths,
        "incomplete": held.is_incomplete,
    });
    if !held.errors.is_empty() {
        status.set("evaluationError", held.errors.join(", "));
    }
    respond(call, json!({}), json!({}), status)
}

fn self_subject_review(call: &Call<'_>, _: Value) -> Value {
    let metadata = json!({"creationTimestamp": metadata::seconds(call.now)});
    respond(call, metadata, Value::Null, json!({"userInfo": user_info(call.user)}))
}

fn respond(call: &Call<'_>, metadata: Value, spec: Value, status: Value) -> Value {
    let kind = &call.served.kind;
    let mut answer = json!({"kind": kind.kind, "apiVersion": kind.api_version(), "metadata": metadata});
    if !spec.is_null() {
        answer.set("spec", spec);
    }
    answer.set("status", status);
    answer
}

/// Returns a user as `UserInfo`. Empty fields are omitted.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    let texts = [("username", &user.name), ("uid", &user.uid)];
    for (field, text) in texts.into_iter().filter(|(_, text)| !text.is_empty()) {
        info.insert(field.into(), text.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    Value::Object(info)
}

/// Returns the status sent with a review.
fn status_of(object: &Value) -> Value {
    let mut status = if object.at("status").is_object() { object.at("status").clone() } else { json!({}) };
    status.object_mut("user");
    status
}

async fn token_review(call: &Call<'_>, mut object: Value) -> Value {
    let spec = object.at("spec");
    let wanted: Vec<String> =
        spec.list("audiences").iter().filter_map(Value::as_str).map(Into::into).collect();
    let wanted = if wanted.is_empty() { call.server.service_accounts.audiences.clone() } else { wanted };
    let reviewed = Box::pin(call.server.review_token(spec.text("token"), &wanted)).await;
    let annotations = match &reviewed {
        Ok(known) => &known.annotations,
        Err(refused) => &refused.annotations,
    };
    for (key, value) in annotations {
        call.context.audit.annotate(key, value.clone());
    }
    let status = match reviewed {
        Ok(known) => {
            call.context.warnings.add(known.warning.unwrap_or_default());
            json!({"authenticated": true, "user": user_info(&known.user), "audiences": known.audiences})
        }
        Err(refused) => {
            // Keeps what the client wrote there.
            let mut status = status_of(&object);
            status.unset("authenticated");
            if !refused.why.is_empty() {
                status.set("error", refused.why);
            }
            status
        }
    };
    object.set("status", status);
    object
}
