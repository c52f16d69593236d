//! Prevents privilege escalation: users can only grant rights they hold, whether by writing a role or by binding one.
//!
//! The verbs `escalate` and `bind` on a role override this.

use serde_json::Value;

use super::{Operation, Plugin, Review};
use crate::auth::rbac::{RoleRef, Rule, compact, missing, quoted};
use crate::auth::{Attributes, MASTERS};
use crate::json::Json;
use crate::kinds::rbac::GROUP;
use crate::metadata;
use crate::request::ResourceTarget;
use crate::status::Status;

pub struct RoleEscalation;

/// The kind of object being written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RbacKind {
    Role,
    Binding,
}

fn written(review: &Review<'_>) -> Option<RbacKind> {
    let kind = &review.served.kind;
    if kind.group != GROUP || review.operation == Operation::Delete || review.subresource.is_some() {
        return None;
    }
    match kind.plural.as_str() {
        "roles" | "clusterroles" => Some(RbacKind::Role),
        "rolebindings" | "clusterrolebindings" => Some(RbacKind::Binding),
        _ => None,
    }
}

impl Plugin for RoleEscalation {
    fn handles(&self, review: &Review<'_>) -> bool {
        written(review).is_some() && !review.user.is_in(MASTERS)
    }

    async fn mutate(
        &self,
        review: &Review<'_>,
        object: &mut Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        if old.is_some_and(|old| changes_only_deletion(object, old)) {
            return Ok(());
        }
        match written(review) {
            Some(RbacKind::Role) => check_role(review, object, old).await,
            Some(RbacKind::Binding) => check_binding(review, object).await,
            None => Ok(()),
        }
    }
}

/// Whether an update only changes metadata needed for deletion (finalizers, owner references): garbage collection may
/// do that without holding the granted rights.
fn changes_only_deletion(new: &Value, old: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
            for field in ["finalizers", "ownerReferences", "managedFields", "resourceVersion", "selfLink"] {
                metadata.remove(field);
            }
        }
        object
    };
    rest(new) == rest(old)
}

async fn check_role(review: &Review<'_>, role: &Value, old: Option<&Value>) -> Result<(), Status> {
    let plural = &review.served.kind.plural;
    if may(review, "escalate", plural, &review.name).await {
        return Ok(());
    }
    let rules = role.list("rules").iter().filter_map(|rule| serde_json::from_value(rule.clone()).ok());
    confirm(review, role, &rules.collect::<Vec<_>>()).await?;
    let is_aggregated = |role: &Value| !role.at("aggregationRule").list("clusterRoleSelectors").is_empty();
    if is_aggregated(role) || old.is_some_and(is_aggregated) {
        // An aggregated role can collect any rights.
        let why = "must have cluster-admin privileges to use the aggregationRule";
        let held = review.server.authorizer.role_rules(review.user, review.namespace).await;
        if !missing(&held.rules, &Rule::full_authority()).is_ok_and(|missing| missing.rules.is_empty()) {
            return Err(review.forbidden(Some(role), why).for_lack_of_rights());
        }
    }
    Ok(())
}

async fn check_binding(review: &Review<'_>, binding: &Value) -> Result<(), Status> {
    let role = binding.at("roleRef");
    let role = RoleRef { kind: role.text("kind").into(), name: role.text("name").into() };
    let plural = match &*role.kind {
        "Role" => "roles",
        "ClusterRole" => "clusterroles",
        other => return Err(Status::unknown(format!("unsupported role reference kind: {other:?}"))),
    };
    if may(review, "bind", plural, &role.name).await {
        return Ok(());
    }
    match review.server.authorizer.role(&role, review.namespace).await {
        Ok(rules) => confirm(review, binding, &rules).await,
        Err(_) => Err(Status::not_found(review.served.named(), &role.name)),
    }
}

/// Whether the user has this verb on a role, which overrides the escalation check.
async fn may(review: &Review<'_>, verb: &str, plural: &str, name: &str) -> bool {
    let target = ResourceTarget {
        group: GROUP.into(),
        version: "*".into(),
        resource: plural.into(),
        namespace: review.namespace.map(Into::into),
        name: Some(name.to_owned()).filter(|name| !name.is_empty()),
        ..ResourceTarget::default()
    };
    let attributes = Attributes { user: review.user, verb, path: "", resource: Some(&target) };
    review.server.authorizer.authorize(&attributes).await.is_allowed()
}

/// Rejects the object unless the user holds all the rights it grants.
async fn confirm(review: &Review<'_>, object: &Value, wanted: &[Rule]) -> Result<(), Status> {
    let user = review.user;
    let held = review.server.authorizer.role_rules(user, review.namespace).await;
    let name = metadata::of(object).text("name");
    let missing = missing(&held.rules, wanted)
        .map_err(|too_broad| Status::forbidden(review.served.named(), name, too_broad))?;
    if missing.rules.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<String> = compact(missing.rules).iter().map(Rule::to_string).collect();
    shown.sort();
    shown.dedup();
    if missing.is_cut {
        shown.push("and more".into());
    }
    let mut why = format!(
        "user {:?} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        user.name,
        quoted(&user.groups),
        shown.join("\n")
    );
    if !held.errors.is_empty() {
        why.push_str(&format!("; resolution errors: [{}]", held.errors.join(", ")));
    }
    Err(Status::forbidden(review.served.named(), name, why).for_lack_of_rights())
}
