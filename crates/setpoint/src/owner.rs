//! Whose dependent is this? What an owner says to its dependents, and how it takes them on and lets
//! them go.
//!
//! What always holds:
//! - what another controller controls is never touched;
//! - an owner that is being deleted takes nothing on and lets nothing go: its dependents are the
//!   garbage collector's;
//! - a patch names the uid of what is adopted or released, so that no namesake is meant by mistake.
//!
//! An adoption should be preceded by a fresh read of the owner, past every cache: a deleted owner
//! must not adopt.

use serde_json::json;

use crate::client::Patch;
use crate::{Kind, LabelSelector, Metadata, OwnerRef};

/// What an owner has to do about a possible dependent, as [`claim`] decides it.
///
/// ```
/// use setpoint::owner::Claim;
/// assert_ne!(Claim::Adopt, Claim::Owned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
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
///
/// ```
/// use setpoint::{LabelSelector, Metadata, owner::{Claim, claim}};
/// let owner = Metadata { uid: "u1".into(), ..Metadata::default() };
/// let selector: LabelSelector = "app=web".parse().unwrap();
/// let orphan = Metadata { labels: [("app", "web")].into_iter().collect(), ..Metadata::default() };
/// assert_eq!(claim(&owner, &selector, &orphan), Claim::Adopt);
/// ```
pub fn claim(owner: &Metadata, selector: &LabelSelector, object: &Metadata) -> Claim {
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
///
/// ```
/// use setpoint::{Kind, Metadata, owner::controller_ref};
/// let sets = Kind::new("apps", "v1", "ReplicaSet", "replicasets", true);
/// let set = Metadata { name: "web".into(), uid: "u1".into(), ..Metadata::default() };
/// let reference = controller_ref(&sets, &set);
/// assert_eq!((&*reference.api_version, reference.controller), ("apps/v1", Some(true)));
/// ```
pub fn controller_ref(kind: &Kind, owner: &Metadata) -> OwnerRef {
    OwnerRef { controller: Some(true), block_owner_deletion: Some(true), ..owner_ref(kind, owner) }
}

/// The reference that makes what carries it go when `owner` goes, without being managed by it.
pub fn owner_ref(kind: &Kind, owner: &Metadata) -> OwnerRef {
    OwnerRef {
        api_version: kind.api_version().into(),
        kind: kind.kind().into(),
        name: (&*owner.name).into(),
        uid: owner.uid.clone(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// The patch by which an owner takes on an object of a built-in kind. It fails where the object is
/// another one by now, or has found another controller.
pub fn adoption(owner: &OwnerRef, object: &Metadata) -> Patch {
    Patch::strategic(&json!({"metadata": {"uid": object.uid, "ownerReferences": [owner]}}))
}

/// The patch by which the owner of this uid lets an object of a built-in kind go.
pub fn release(owner_uid: &str, object: &Metadata) -> Patch {
    let gone = json!([{"$patch": "delete", "uid": owner_uid}]);
    Patch::strategic(&json!({"metadata": {"uid": object.uid, "ownerReferences": gone}}))
}

/// The patch by which an owner takes on an object of any kind, custom ones too, whose lists cannot be
/// merged. It fails where the object has changed since it was read.
pub fn adoption_of_any(owner: &OwnerRef, object: &Metadata) -> Patch {
    let mut owners = others(&owner.uid, object);
    owners.push(owner);
    of_any(&owners, object)
}

/// The patch by which the owner of this uid lets an object of any kind go.
pub fn release_of_any(owner_uid: &str, object: &Metadata) -> Patch {
    of_any(&others(owner_uid, object), object)
}

fn others<'a>(owner_uid: &str, object: &'a Metadata) -> Vec<&'a OwnerRef> {
    object.owner_references.iter().filter(|owner| &*owner.uid != owner_uid).collect()
}

fn of_any(owners: &[&OwnerRef], object: &Metadata) -> Patch {
    let Metadata { uid, resource_version, .. } = object;
    // In a merge patch `null` removes the list, an empty list would stay behind.
    let owners = if owners.is_empty() { serde_json::Value::Null } else { json!(owners) };
    Patch::merge(
        &json!({"metadata": {"uid": uid, "resourceVersion": resource_version, "ownerReferences": owners}}),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn kind() -> Kind {
        Kind::new("apps", "v1", "ReplicaSet", "replicasets", true)
    }

    fn owner(deleted: bool) -> Metadata {
        let deletion_timestamp = deleted.then(|| "2025-01-01T00:00:00Z".parse().expect("a time"));
        Metadata { name: "web".into(), uid: "mine".into(), deletion_timestamp, ..Metadata::default() }
    }

    fn object(controller: Option<&str>, app: &str, deleted: bool) -> Metadata {
        let deletion_timestamp = owner(deleted).deletion_timestamp;
        let owner_references = controller.map(|uid| {
            controller_ref(&kind(), &Metadata { name: "x".into(), uid: uid.into(), ..Metadata::default() })
        });
        Metadata {
            uid: "o1".into(),
            resource_version: "7".into(),
            labels: [("app", app)].into_iter().collect(),
            owner_references: owner_references.into_iter().collect(),
            deletion_timestamp,
            ..Metadata::default()
        }
    }

    #[test]
    fn a_claim_depends_on_controller_labels_and_deletion() {
        let selector: LabelSelector = "app=web".parse().expect("a selector");
        let check = |owner_deleted, controller, app, deleted, expected| {
            let object = object(controller, app, deleted);
            assert_eq!(claim(&owner(owner_deleted), &selector, &object), expected, "{object:?}");
        };
        check(false, Some("mine"), "web", false, Claim::Owned);
        check(false, Some("mine"), "web", true, Claim::Owned);
        check(true, Some("mine"), "web", false, Claim::Owned);
        check(false, Some("mine"), "db", false, Claim::Release);
        check(true, Some("mine"), "db", false, Claim::Foreign);
        check(false, Some("theirs"), "web", false, Claim::Foreign);
        check(false, None, "web", false, Claim::Adopt);
        check(false, None, "web", true, Claim::Foreign);
        check(true, None, "web", false, Claim::Foreign);
        check(false, None, "db", false, Claim::Foreign);
    }

    fn body(patch: Patch) -> Value {
        match patch {
            Patch::Strategic(body) | Patch::Merge(body) => serde_json::from_slice(&body).expect("JSON"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn patches_name_what_they_mean() {
        let reference = controller_ref(&kind(), &owner(false));
        let mine = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "mine",
            "controller": true, "blockOwnerDeletion": true});
        let theirs = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "x", "uid": "theirs",
            "controller": true, "blockOwnerDeletion": true});
        assert_eq!(
            body(adoption(&reference, &object(None, "web", false))),
            json!({"metadata": {"uid": "o1", "ownerReferences": [mine]}})
        );
        assert_eq!(
            body(release("mine", &object(Some("mine"), "web", false))),
            json!({"metadata": {"uid": "o1", "ownerReferences": [{"$patch": "delete", "uid": "mine"}]}})
        );
        assert_eq!(
            body(adoption_of_any(&reference, &object(Some("theirs"), "web", false))),
            json!({"metadata": {"uid": "o1", "resourceVersion": "7", "ownerReferences": [theirs, mine]}})
        );
        assert_eq!(
            body(release_of_any("mine", &object(Some("mine"), "web", false))),
            json!({"metadata": {"uid": "o1", "resourceVersion": "7", "ownerReferences": null}})
        );
    }
}
