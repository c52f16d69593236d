//! Users may only give params to policies if they may read them: a policy exposes its params in messages or objects to
//! everyone whose requests it handles.
//!
//! v1.34 has this in validation. It is a plugin here, because it waits for the authorizer.

use serde_json::Value;

use super::source::ParamKind;
use super::{GROUP, params};
use crate::admission::{Operation, Plugin, Review};
use crate::auth::{Attributes, MASTERS, User};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::metadata;
use crate::registry::Registry;
use crate::request::ResourceTarget;
use crate::status::{Named, Status};

pub struct ParamRights;

/// The written object.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Policy,
    /// With the plural of its policies.
    Binding(&'static str),
}

fn written(review: &Review<'_>) -> Option<Written> {
    let kind = &review.served.kind;
    if kind.group != GROUP || review.operation == Operation::Delete || review.subresource.is_some() {
        return None;
    }
    match kind.plural.as_str() {
        "validatingadmissionpolicies" | "mutatingadmissionpolicies" => Some(Written::Policy),
        "validatingadmissionpolicybindings" => Some(Written::Binding("validatingadmissionpolicies")),
        "mutatingadmissionpolicybindings" => Some(Written::Binding("mutatingadmissionpolicies")),
        _ => None,
    }
}

impl Plugin for ParamRights {
    fn handles(&self, review: &Review<'_>) -> bool {
        written(review).is_some() && !review.user.is_in(MASTERS)
    }

    async fn check(
        &self,
        review: &Review<'_>,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (Some(object), Some(written)) = (object, written(review)) else { return Ok(()) };
        let spec = object.at("spec");
        let (field, outcome) = match written {
            Written::Policy => ("paramKind", check_policy(review, spec, old).await),
            Written::Binding(plural) => ("paramRef", check_binding(review, spec, plural).await?),
        };
        let Err(why) = outcome else { return Ok(()) };
        let mut errors = Errors::default();
        errors.forbidden(&Path::root("spec").child(field), &why);
        Err(Status::invalid(Named::kind(&review.served.kind), metadata::of(object).text("name"), &errors))
    }
}

/// A policy may expose any object of its params' kind.
async fn check_policy(review: &Review<'_>, spec: &Value, old: Option<&Value>) -> Result<(), String> {
    let kind = spec.at("paramKind");
    let Some(params) = ParamKind::of(kind) else { return Ok(()) };
    if old.is_some_and(|old| old.at("spec").at("paramKind") == kind) {
        return Ok(());
    }
    let registry = review.server.registry.snapshot();
    let all = || Some("*".to_owned());
    let target = ResourceTarget { name: all(), namespace: all(), ..target(Some(&params), &registry) };
    match may(review, "get", &target).await? {
        true => Ok(()),
        false => Err(format!(
            "user {} must have \"get\" permission on all objects of the referenced paramKind (kind={}, apiVersion={})",
            shown(review.user),
            params.kind,
            kind.text("apiVersion")
        )),
    }
}

/// A binding exposes the objects that it selects.
async fn check_binding(
    review: &Review<'_>,
    spec: &Value,
    plural: &str,
) -> Result<Result<(), String>, Status> {
    let reference = spec.at("paramRef");
    if reference.is_null() {
        return Ok(Ok(()));
    }
    let registry = review.server.registry.snapshot();
    let policy = policy(review, &registry, plural, spec.text("policyName")).await?;
    let params = policy.as_ref().and_then(|policy| ParamKind::of(policy.at("spec").at("paramKind")));
    let some = |field: &str| Some(reference.text(field).to_owned()).filter(|text| !text.is_empty());
    let target = ResourceTarget {
        name: some("name"),
        namespace: some("namespace"),
        ..target(params.as_ref(), &registry)
    };
    let verb = if target.name.is_some() { "get" } else { "list" };
    let user = shown(review.user);
    let everything = format!(
        "to determine minimum required permissions and user {user} does not have {verb:?} permission for all groups, \
         versions and resources"
    );
    Ok(match may(review, verb, &target).await {
        Ok(true) => Ok(()),
        Ok(false) if policy.is_none() => {
            Err(format!("unable to get policy {} {everything}", spec.text("policyName")))
        }
        Ok(false) if params::check_kind(params.as_ref(), &registry).is_err() => {
            let kind = params.map(|params| params.kind).unwrap_or_default();
            Err(format!("unable to resolve paramKind {kind} {everything}"))
        }
        Ok(false) => {
            Err(format!("user {user} does not have {verb:?} permission on the object referenced by paramRef"))
        }
        Err(why) => Err(why),
    })
}

async fn policy(
    review: &Review<'_>,
    registry: &Registry,
    plural: &str,
    name: &str,
) -> Result<Option<Value>, Status> {
    let Some(served) = registry.resource(GROUP, &review.served.kind.version, plural) else { return Ok(None) };
    let found = review.server.store.get(&served.key(None, name), None).await;
    let record = found.map_err(|why| review.server.refusal(why))?;
    record.map(|record| served.decode_bare(&record)).transpose()
}

/// The resource to read: everything, if the kind of the params is unknown.
fn target(params: Option<&ParamKind>, registry: &Registry) -> ResourceTarget {
    let any = || "*".to_owned();
    let Some(ParamKind { group, version, kind }) = params else {
        return ResourceTarget { group: any(), version: any(), resource: any(), ..ResourceTarget::default() };
    };
    let served = registry.kind(group, version, kind);
    ResourceTarget {
        group: group.clone(),
        version: version.clone(),
        resource: served.map_or_else(any, |served| served.kind.plural.clone()),
        ..ResourceTarget::default()
    }
}

async fn may(review: &Review<'_>, verb: &str, target: &ResourceTarget) -> Result<bool, String> {
    let attributes = Attributes { user: review.user, verb, path: "", resource: Some(target) };
    let decision = review.server.authorizer.authorize(&attributes).await;
    match (decision.is_allowed(), &decision.error) {
        (true, _) => Ok(true),
        (false, Some(why)) => Err(why.clone()),
        (false, None) => Ok(false),
    }
}

/// Formats a user as Go prints the struct.
fn shown(user: &User) -> String {
    let extra = user.extra.iter().map(|(key, values)| format!("{key}:[{}]", values.join(" ")));
    let extra = extra.collect::<Vec<_>>().join(" ");
    format!("&{{{} {} [{}] map[{extra}]}}", user.name, user.uid, user.groups.join(" "))
}
