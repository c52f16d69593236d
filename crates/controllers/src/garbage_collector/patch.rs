//! Patch bodies.
//!
//! Every patch carries the uid or the resource version it was made for, so that it cannot hit another object of the
//! same name. Built-in kinds merge owner references by uid. Custom resources replace the whole list, so the whole list
//! is sent, with the resource version it is based on.

use bytes::Bytes;
use serde_json::{Value, json};
use setpoint::{Object, OwnerRef};

/// Removes owner references by uid: a strategic merge patch.
pub(super) fn drop_owners(item: &Object, uids: &[&str]) -> Bytes {
    let dropped: Vec<Value> = uids.iter().map(|uid| json!({"$patch": "delete", "uid": uid})).collect();
    body(json!({"metadata": {"uid": item.meta().uid, "ownerReferences": dropped}}))
}

/// Removes owner references by uid: a JSON merge patch.
pub(super) fn drop_owners_replacing(item: &Object, uids: &[&str]) -> Bytes {
    let stays = |owner: &&OwnerRef| !uids.contains(&&*owner.uid);
    replace_owners(item, item.meta().owner_references.iter().filter(stays).cloned().collect())
}

/// Clears `blockOwnerDeletion` of all references: a strategic merge patch.
pub(super) fn unblock_owners(item: &Object) -> Bytes {
    let blocking =
        item.meta().owner_references.iter().filter(|owner| owner.block_owner_deletion == Some(true));
    let unblocked: Vec<OwnerRef> = blocking.map(unblocked).collect();
    body(json!({"metadata": {"uid": item.meta().uid, "ownerReferences": unblocked}}))
}

/// Clears `blockOwnerDeletion` of all references: a JSON merge patch.
pub(super) fn unblock_owners_replacing(item: &Object) -> Bytes {
    replace_owners(item, item.meta().owner_references.iter().map(unblocked).collect())
}

/// Removes a finalizer: a JSON merge patch. `None` if the object does not have it.
pub(super) fn remove_finalizer(object: &Object, finalizer: &str) -> Option<Bytes> {
    let meta = object.meta();
    let rest: Vec<&str> = meta.finalizers.iter().map(|own| &**own).filter(|own| *own != finalizer).collect();
    let found = rest.len() < meta.finalizers.len();
    found.then(|| {
        body(json!({"metadata": {"resourceVersion": meta.resource_version, "finalizers": or_null(rest)}}))
    })
}

fn replace_owners(item: &Object, owners: Vec<OwnerRef>) -> Bytes {
    let version = &item.meta().resource_version;
    body(json!({"metadata": {"resourceVersion": version, "ownerReferences": or_null(owners)}}))
}

fn unblocked(owner: &OwnerRef) -> OwnerRef {
    OwnerRef { block_owner_deletion: Some(false), ..owner.clone() }
}

/// In a merge patch, null removes a field.
fn or_null<T: serde::Serialize>(list: Vec<T>) -> Value {
    if list.is_empty() { Value::Null } else { json!(list) }
}

fn body(patch: Value) -> Bytes {
    Bytes::from(patch.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item() -> Object {
        let owner = |uid: &str, block: bool| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid, "blockOwnerDeletion": block});
        let object = json!({"metadata": {
            "name": "item", "namespace": "shop", "uid": "i", "resourceVersion": "7",
            "ownerReferences": [owner("a", true), owner("b", false)],
            "finalizers": ["orphan", "example.com/other"],
        }});
        Object::from_json(object.to_string().into()).unwrap()
    }

    #[track_caller]
    fn check(patch: Bytes, expected: Value) {
        assert_eq!(serde_json::from_slice::<Value>(&patch).unwrap(), expected);
    }

    #[test]
    fn owner_references_are_removed_by_uid() {
        let expected = json!({"uid": "i", "ownerReferences": [{"$patch": "delete", "uid": "a"}]});
        check(drop_owners(&item(), &["a"]), json!({"metadata": expected}));
        let stays = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "b",
                           "blockOwnerDeletion": false});
        let expected = json!({"resourceVersion": "7", "ownerReferences": [stays]});
        check(drop_owners_replacing(&item(), &["a"]), json!({"metadata": expected}));
        let expected = json!({"resourceVersion": "7", "ownerReferences": null});
        check(drop_owners_replacing(&item(), &["a", "b"]), json!({"metadata": expected}));
    }

    #[test]
    fn unblocking_touches_only_what_blocks_where_it_can() {
        let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid, "blockOwnerDeletion": false});
        let expected = json!({"uid": "i", "ownerReferences": [owner("a")]});
        check(unblock_owners(&item()), json!({"metadata": expected}));
        let expected = json!({"resourceVersion": "7", "ownerReferences": [owner("a"), owner("b")]});
        check(unblock_owners_replacing(&item()), json!({"metadata": expected}));
    }

    #[test]
    fn the_other_finalizers_stay() {
        let expected = json!({"resourceVersion": "7", "finalizers": ["example.com/other"]});
        check(remove_finalizer(&item(), "orphan").unwrap(), json!({"metadata": expected}));
        assert!(remove_finalizer(&item(), "foregroundDeletion").is_none());
    }
}
