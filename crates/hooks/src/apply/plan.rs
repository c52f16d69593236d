//! Plans the actions that give a parent the children that its hook returned.
//!
//! Invariants:
//! - After the actions of a plan have been carried out, the next plan is empty.
//! - A child that is being deleted is left alone; it is recreated once it is gone.
//! - Deletes carry the uid of the child, and updates its resource version.

use serde_json::{Value, json};
use setpoint::{Key, Kind, OwnerRef};

use super::ledger::{Ledger, fingerprint};
use super::merge::{annotate, remove_annotation, system_fields_removed, updated};
use super::same::same;
use crate::model::Method;
use crate::wire::Objects;

/// How children are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApplyMode {
    /// Metacontroller's default: a three-way merge in this process, with the last applied child in an annotation.
    #[default]
    Dynamic,
    /// Forced server-side apply.
    ServerSide,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// The hook no longer returns it.
    Delete {
        kind: Kind,
        key: Key,
        uid: String,
    },
    /// It is deleted now, and recreated once it is gone.
    Recreate {
        kind: Kind,
        key: Key,
        uid: String,
    },
    Create {
        kind: Kind,
        key: Key,
        body: Value,
    },
    Update {
        kind: Kind,
        key: Key,
        body: Value,
    },
    Apply {
        kind: Kind,
        key: Key,
        body: Value,
        /// The uid of a child that still has the annotation of an earlier dynamic apply, which is removed first.
        noted: Option<String>,
    },
    /// Recreate the child if applying this would change it.
    RecreateIfDifferent {
        kind: Kind,
        key: Key,
        body: Value,
        observed: Value,
    },
}

/// The inputs of a plan.
pub(crate) struct Intent<'a> {
    pub(crate) observed: &'a Objects,
    pub(crate) desired: &'a Objects,
    /// The owner reference of children to their parent.
    pub(crate) owner: &'a OwnerRef,
    pub(crate) mode: ApplyMode,
    pub(crate) ledger: &'a Ledger,
    /// The update strategies of children, by kind.
    pub(crate) method: &'a (dyn Fn(&Kind) -> Method + Sync),
}

/// Returns the actions, deletes first, and the errors of individual children.
pub(crate) fn plan(intent: &Intent<'_>) -> (Vec<Action>, Vec<String>) {
    let (mut actions, mut errors) = (Vec::new(), Vec::new());
    for (kind, key, child) in intent.observed.iter() {
        if !intent.desired.contains(kind, key) && !is_being_deleted(child) {
            actions.push(Action::Delete { kind: kind.clone(), key: key.clone(), uid: uid(child) });
        }
    }
    for (kind, key, desired) in intent.desired.iter() {
        match intent.observed.get(kind, key) {
            None => actions.push(intent.create(kind, key, desired)),
            Some(observed) if is_being_deleted(observed) => {}
            Some(observed) => match intent.change(kind, key, observed, desired) {
                Ok(action) => actions.extend(action),
                Err(why) => errors.push(format!("{} {key}: {why}", kind.kind())),
            },
        }
    }
    (actions, errors)
}

impl Intent<'_> {
    fn create(&self, kind: &Kind, key: &Key, desired: &Value) -> Action {
        let (kind, key) = (kind.clone(), key.clone());
        match self.mode {
            ApplyMode::Dynamic => {
                let mut wanted = desired.clone();
                remove_annotation(&mut wanted);
                let mut body = wanted.clone();
                annotate(&mut body, &wanted);
                own(&mut body, self.owner);
                if let Some(fields) = body["metadata"].as_object_mut() {
                    // A hook may return a child in its state before it was deleted.
                    ["uid", "resourceVersion"].iter().for_each(|field| _ = fields.remove(*field));
                }
                Action::Create { kind, key, body }
            }
            ApplyMode::ServerSide => {
                Action::Apply { kind, key, body: apply_body(desired, self.owner), noted: None }
            }
        }
    }

    fn change(
        &self,
        kind: &Kind,
        key: &Key,
        observed: &Value,
        desired: &Value,
    ) -> Result<Option<Action>, String> {
        let method = (self.method)(kind);
        if method == Method::OnDelete {
            return Ok(None);
        }
        let (kind, key) = (kind.clone(), key.clone());
        if self.mode == ApplyMode::ServerSide {
            return Ok(self.change_applied(kind, key, observed, desired, method));
        }
        let body = updated(observed, desired)?;
        Ok(match method {
            _ if same(&body, observed) => None,
            Method::Recreate | Method::RollingRecreate => {
                Some(Action::Recreate { kind, key, uid: uid(observed) })
            }
            _ => Some(Action::Update { kind, key, body }),
        })
    }

    fn change_applied(
        &self,
        kind: Kind,
        key: Key,
        observed: &Value,
        desired: &Value,
        method: Method,
    ) -> Option<Action> {
        let body = apply_body(desired, self.owner);
        if self.ledger.shows(&kind, &key, fingerprint(&body), observed) {
            return None;
        }
        Some(match method {
            Method::Recreate | Method::RollingRecreate => {
                Action::RecreateIfDifferent { kind, key, body, observed: observed.clone() }
            }
            _ => {
                let has_note = observed["metadata"]["annotations"].get(crate::names::LAST_APPLIED).is_some();
                Action::Apply { kind, key, body, noted: has_note.then(|| uid(observed)) }
            }
        })
    }
}

/// Returns the body of a server-side apply.
pub(crate) fn apply_body(desired: &Value, owner: &OwnerRef) -> Value {
    let mut body = desired.clone();
    own(&mut body, owner);
    system_fields_removed(&body)
}

/// Adds an owner reference to the parent, unless there is one.
fn own(child: &mut Value, owner: &OwnerRef) {
    let Some(metadata) = child["metadata"].as_object_mut() else { return };
    let owners = metadata.entry("ownerReferences").or_insert(Value::Null);
    match owners.as_array_mut() {
        Some(owners) if owners.iter().any(|known| known["uid"] == *owner.uid) => {}
        Some(owners) => owners.push(json!(owner)),
        None => *owners = json!([owner]),
    }
}

fn is_being_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods() -> Kind {
        Kind::new("", "v1", "Pod", "pods", true)
    }

    fn owner() -> OwnerRef {
        let owner =
            json!({"apiVersion": "e/v1", "kind": "Thing", "name": "t", "uid": "p", "controller": true});
        serde_json::from_value(owner).expect("a reference")
    }

    fn wanted(value: i64) -> Value {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "n"}, "spec": {"x": value}})
    }

    fn objects(all: &[Value]) -> Objects {
        let mut objects = Objects::default();
        objects.declare(&pods());
        for object in all {
            let text = |field: &str| object["metadata"][field].as_str().expect("text");
            objects.insert(&pods(), Key::namespaced(text("namespace"), text("name")), object.clone());
        }
        objects
    }

    fn planned(
        observed: &[Value],
        desired: &[Value],
        mode: ApplyMode,
        method: Method,
        ledger: &Ledger,
    ) -> Vec<Action> {
        let (observed, desired, owner) = (objects(observed), objects(desired), owner());
        let intent = Intent {
            observed: &observed,
            desired: &desired,
            owner: &owner,
            mode,
            ledger,
            method: &move |_| method,
        };
        let (actions, errors) = plan(&intent);
        assert!(errors.is_empty(), "{errors:?}");
        actions
    }

    /// Returns the stored child after an action.
    fn stored(action: &Action) -> Value {
        let (Action::Create { body, .. } | Action::Update { body, .. } | Action::Apply { body, .. }) = action
        else {
            panic!("{action:?} writes nothing");
        };
        let mut stored = body.clone();
        stored["metadata"]["uid"] = "u".into();
        stored["metadata"]["generation"] = 1.into();
        stored["status"] = json!({"ready": true});
        stored
    }

    #[test]
    fn a_child_is_created_changed_and_deleted() {
        let ledger = Ledger::default();
        let plan = |observed: &[Value], desired: &[Value], method| {
            planned(observed, desired, ApplyMode::Dynamic, method, &ledger)
        };
        let created = plan(&[], &[wanted(1)], Method::InPlace);
        let child = stored(&created[0]);
        assert_eq!(child["metadata"]["ownerReferences"][0]["uid"], "p");
        assert_eq!(plan(std::slice::from_ref(&child), &[wanted(1)], Method::InPlace), []);
        let changed = plan(std::slice::from_ref(&child), &[wanted(2)], Method::InPlace);
        assert_eq!(stored(&changed[0])["spec"]["x"], 2);
        assert_eq!(plan(&[stored(&changed[0])], &[wanted(2)], Method::InPlace), []);
        let (kind, key, uid) = (pods(), Key::namespaced("n", "a"), "u".to_owned());
        let recreated = Action::Recreate { kind: kind.clone(), key: key.clone(), uid: uid.clone() };
        assert_eq!(plan(std::slice::from_ref(&child), &[wanted(2)], Method::Recreate), [recreated]);
        assert_eq!(plan(std::slice::from_ref(&child), &[wanted(2)], Method::OnDelete), []);
        assert_eq!(plan(&[child], &[], Method::OnDelete), [Action::Delete { kind, key, uid }]);
    }

    #[test]
    fn a_child_that_is_being_deleted_is_left_alone() {
        let mut leaving = wanted(1);
        leaving["metadata"]["deletionTimestamp"] = "2025-01-01T00:00:00Z".into();
        for mode in [ApplyMode::Dynamic, ApplyMode::ServerSide] {
            let ledger = Ledger::default();
            assert_eq!(planned(std::slice::from_ref(&leaving), &[], mode, Method::InPlace, &ledger), []);
            assert_eq!(
                planned(std::slice::from_ref(&leaving), &[wanted(2)], mode, Method::InPlace, &ledger),
                []
            );
        }
    }

    #[test]
    fn server_side_applies_are_not_repeated() {
        let ledger = Ledger::default();
        let plan = |observed: &[Value], value: i64, method| {
            planned(observed, &[wanted(value)], ApplyMode::ServerSide, method, &ledger)
        };
        let created = plan(&[], 1, Method::InPlace);
        let child = stored(&created[0]);
        let Action::Apply { kind, key, body, noted: None } = &created[0] else { panic!("{created:?}") };
        assert_eq!(plan(std::slice::from_ref(&child), 1, Method::InPlace).len(), 1, "after a restart, once");
        ledger.note(kind, key, fingerprint(body), &child);
        assert_eq!(plan(std::slice::from_ref(&child), 1, Method::InPlace), []);
        assert_eq!(plan(std::slice::from_ref(&child), 2, Method::InPlace).len(), 1);
        assert!(matches!(
            plan(std::slice::from_ref(&child), 2, Method::Recreate)[0],
            Action::RecreateIfDifferent { .. }
        ));
        assert_eq!(plan(&[child], 2, Method::OnDelete), []);
    }
}
