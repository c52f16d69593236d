//! Whose dependent is this? Pure.
//!
//! What always holds:
//! - what another controller controls is never touched;
//! - an owner that is being deleted takes nothing on and lets nothing go: its dependents are the
//!   garbage collector's;
//! - an adoption names the uid of what is adopted and is preceded by a fresh read of the owner, so
//!   that neither a namesake is adopted nor a deleted owner adopts.

use serde_json::json;
use setpoint::{Kind, LabelSelector, Metadata, OwnerRef};

/// What an owner has to do about a possible dependent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Its own already.
    Owned,
    /// An orphan it selects.
    Adopt,
    /// Its own, but no longer selected.
    Release,
    /// No concern of this owner.
    Foreign,
}

/// Decides about an object of the owner's namespace.
pub(crate) fn claim(owner: &Metadata, selector: &LabelSelector, object: &Metadata) -> Claim {
    let selected = selector.matches(&object.labels);
    match object.controller() {
        Some(controller) if controller.uid != owner.uid => Claim::Foreign,
        Some(_) if selected => Claim::Owned,
        Some(_) if owner.is_being_deleted() => Claim::Foreign,
        Some(_) => Claim::Release,
        None if selected && !owner.is_being_deleted() && !object.is_being_deleted() => Claim::Adopt,
        None => Claim::Foreign,
    }
}

/// The reference that makes `owner` the managing controller of what carries it.
pub(crate) fn controller_ref(kind: &Kind, owner: &Metadata) -> OwnerRef {
    OwnerRef {
        api_version: kind.api_version().into(),
        kind: kind.kind().into(),
        name: (&*owner.name).into(),
        uid: owner.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// A strategic merge patch by which `owner` takes control of an object. It fails where the object is
/// another one by now, or has found another controller.
pub(crate) fn adoption(owner: &OwnerRef, object: &Metadata) -> Vec<u8> {
    json!({"metadata": {"uid": object.uid, "ownerReferences": [owner]}}).to_string().into_bytes()
}

/// A strategic merge patch by which the owner of this uid lets an object go.
pub(crate) fn release(owner_uid: &str, object: &Metadata) -> Vec<u8> {
    json!({"metadata": {"uid": object.uid, "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}})
        .to_string()
        .into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(app: &str) -> setpoint::Labels {
        [("app", app)].into_iter().collect()
    }

    fn object(app: &str, controller: Option<&str>, deleted: bool) -> Metadata {
        let owner = |uid: &str| OwnerRef {
            api_version: "apps/v1".into(),
            kind: "ReplicaSet".into(),
            name: "owner".into(),
            uid: uid.into(),
            controller: Some(true),
            block_owner_deletion: None,
        };
        Metadata {
            name: "o".into(),
            uid: "o-uid".into(),
            labels: labels(app),
            owner_references: controller.map(owner).into_iter().collect(),
            deletion_timestamp: deleted.then_some(jiff::Timestamp::UNIX_EPOCH),
            ..Metadata::default()
        }
    }

    #[test]
    fn an_owner_claims_what_it_selects_and_nobody_else_controls() {
        let selector = LabelSelector { match_labels: labels("shop"), ..LabelSelector::default() };
        let check = |owner_deleted: bool, object: Metadata, expected: Claim| {
            let owner = Metadata { uid: "me".into(), ..object_owner(owner_deleted) };
            assert_eq!(
                claim(&owner, &selector, &object),
                expected,
                "owner deleted: {owner_deleted}, {object:?}"
            );
        };
        check(false, object("shop", Some("me"), false), Claim::Owned);
        check(false, object("shop", Some("me"), true), Claim::Owned);
        check(true, object("shop", Some("me"), false), Claim::Owned);
        check(false, object("other", Some("me"), false), Claim::Release);
        check(true, object("other", Some("me"), false), Claim::Foreign);
        check(false, object("shop", Some("you"), false), Claim::Foreign);
        check(false, object("other", Some("you"), false), Claim::Foreign);
        check(false, object("shop", None, false), Claim::Adopt);
        check(false, object("shop", None, true), Claim::Foreign);
        check(true, object("shop", None, false), Claim::Foreign);
        check(false, object("other", None, false), Claim::Foreign);
    }

    fn object_owner(deleted: bool) -> Metadata {
        Metadata { deletion_timestamp: deleted.then_some(jiff::Timestamp::UNIX_EPOCH), ..Metadata::default() }
    }

    #[test]
    fn the_patches_name_the_uid_of_what_they_change() {
        let kind = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
        let owner = Metadata { name: "web".into(), uid: "w".into(), ..Metadata::default() };
        let object = object("shop", None, false);
        let adoption: serde_json::Value =
            serde_json::from_slice(&adoption(&controller_ref(&kind, &owner), &object)).unwrap();
        assert_eq!(
            adoption,
            json!({"metadata": {"uid": "o-uid", "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "w",
                "controller": true, "blockOwnerDeletion": true,
            }]}})
        );
        let release: serde_json::Value = serde_json::from_slice(&release("w", &object)).unwrap();
        assert_eq!(
            release,
            json!({"metadata": {"uid": "o-uid", "ownerReferences": [{"$patch": "delete", "uid": "w"}]}})
        );
    }
}
