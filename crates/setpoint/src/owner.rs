//! Owner references: how a controller claims, adopts and releases its dependents.
//!
//! Invariants:
//! - Objects controlled by another controller are never touched.
//! - An owner that is being deleted neither adopts nor releases: its dependents are left to the garbage collector.
//! - A patch names the uid of the object it adopts or releases, so that it never hits another object of the same name.
//!
//! Before adopting, read the owner from the API server rather than from a cache: a deleted owner must not adopt.

use serde_json::json;

use crate::client::Patch;
use crate::{Kind, LabelSelector, Metadata, OwnerRef};

/// What an owner should do with a potential dependent, as decided by [`claim`].
///
/// ```
/// use setpoint::owner::Claim;
/// assert_ne!(Claim::Adopt, Claim::Owned);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Already controlled by this owner.
    Owned,
    /// An orphan that matches the selector: adopt it.
    Adopt,
    /// Controlled by this owner, but no longer matches the selector: release it.
    Release,
    /// Not this owner's concern.
    Foreign,
}

/// Decides what an owner should do with an object in its namespace.
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

/// Builds the owner reference that makes `owner` the object's managing controller.
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

/// Builds an owner reference for garbage collection only: the object is deleted with `owner`, but not managed by it.
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

/// Builds the patch that adopts an object of a built-in kind. The patch fails if the object has been replaced by
/// another of the same name, or has gained another controller.
pub fn adoption(owner: &OwnerRef, object: &Metadata) -> Patch {
    Patch::strategic(&json!({"metadata": {"uid": object.uid, "ownerReferences": [owner]}}))
}

/// Builds the patch that releases an object of a built-in kind from the owner with this uid.
pub fn release(owner_uid: &str, object: &Metadata) -> Patch {
    let gone = json!([{"$patch": "delete", "uid": owner_uid}]);
    Patch::strategic(&json!({"metadata": {"uid": object.uid, "ownerReferences": gone}}))
}

/// Builds the patch that adopts an object of any kind, including custom resources, whose lists cannot be merged. The
/// patch fails if the object has changed since it was read.
pub fn adoption_of_any(owner: &OwnerRef, object: &Metadata) -> Patch {
    let mut owners = others(&owner.uid, object);
    owners.push(owner);
    of_any(&owners, object)
}

/// Builds the patch that releases an object of any kind from the owner with this uid.
pub fn release_of_any(owner_uid: &str, object: &Metadata) -> Patch {
    of_any(&others(owner_uid, object), object)
}

fn others<'a>(owner_uid: &str, object: &'a Metadata) -> Vec<&'a OwnerRef> {
    object.owner_references.iter().filter(|owner| &*owner.uid != owner_uid).collect()
}

fn of_any(owners: &[&OwnerRef], object: &Metadata) -> Patch {
    let Metadata { uid, resource_version, .. } = object;
    // In a merge patch, `null` removes the list. An empty list would be kept.
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
    fn patches_contain_only_the_changed_fields() {
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
