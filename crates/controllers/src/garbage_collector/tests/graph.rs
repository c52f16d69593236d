//! Individual scenarios.

use setpoint::client::PropagationPolicy::{Background, Foreground, Orphan};
use setpoint::{Kind, OwnerRef};

use super::model::{Model, kinds};
use crate::garbage_collector::uid::Uid;

const BOX: usize = 0;
const LID: usize = 1;
const SHELF: usize = 2;

impl Model {
    /// Creates an object in the namespace `shop` with these owners, not blocking them.
    fn owned(&mut self, kind: usize, owners: &[&Uid]) -> Uid {
        let owners = owners.iter().map(|uid| self.refer(uid)).collect();
        self.create(kind, "shop", false, owners)
    }

    /// Creates an object in the namespace `shop` with these owners, blocking them.
    fn blocking(&mut self, kind: usize, owners: &[&Uid]) -> Uid {
        let owners =
            owners.iter().map(|uid| OwnerRef { block_owner_deletion: Some(true), ..self.refer(uid) });
        let owners = owners.collect();
        self.create(kind, "shop", false, owners)
    }

    fn refer(&self, uid: &Uid) -> OwnerRef {
        self.reference(uid, false).expect("an owner is there when it is referred to")
    }

    #[track_caller]
    fn check(&self, stay: &[&Uid], go: &[&Uid]) {
        self.assert_settled();
        stay.iter().enumerate().for_each(|(nth, uid)| assert!(self.has(uid), "number {nth} stays"));
        go.iter().enumerate().for_each(|(nth, uid)| assert!(!self.has(uid), "number {nth} goes"));
    }
}

#[test]
fn dependents_go_after_their_owner_level_by_level() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let b = model.owned(LID, &[&a]);
    let c = model.owned(BOX, &[&b]);
    model.settle();
    model.check(&[&a, &b, &c], &[]);
    model.user_deletes(&a, Background);
    model.settle();
    model.check(&[], &[&a, &b, &c]);
}

#[test]
fn an_owner_deleted_in_the_foreground_goes_after_its_blocking_dependents() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let held = {
        let owner = OwnerRef { block_owner_deletion: Some(true), ..model.refer(&a) };
        model.create(BOX, "shop", true, vec![owner])
    };
    let free = model.owned(BOX, &[&a]);
    model.settle();
    model.user_deletes(&a, Foreground);
    model.settle();
    model.check(&[&a, &held], &[&free]);
    model.release_held();
    model.settle();
    model.check(&[], &[&a, &held, &free]);
}

#[test]
fn an_orphaning_owner_deletes_no_dependents() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let b = model.blocking(BOX, &[&a]);
    let c = model.owned(BOX, &[&b]);
    model.settle();
    model.user_deletes(&a, Orphan);
    model.settle();
    model.check(&[&b, &c], &[&a]);
    assert!(model.owners(&b).is_empty());
}

#[test]
fn the_last_of_several_owners_takes_the_dependent_along() {
    let mut model = Model::new();
    let (a, b) = (model.owned(BOX, &[]), model.owned(LID, &[]));
    let c = model.owned(BOX, &[&a, &b]);
    model.settle();
    model.user_deletes(&a, Background);
    model.settle();
    model.check(&[&b, &c], &[&a]);
    assert_eq!(model.owners(&c), [model.refer(&b)], "it lets go of the one that is gone");
    model.user_deletes(&b, Background);
    model.settle();
    model.check(&[], &[&b, &c]);
}

#[test]
fn another_object_of_the_owners_name_is_not_the_owner() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let owner = OwnerRef { uid: "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d21".into(), ..model.refer(&a) };
    let b = model.create(BOX, "shop", false, vec![owner]);
    model.settle();
    model.check(&[&a], &[&b]);
}

#[test]
fn an_owner_in_another_namespace_is_no_owner() {
    // In either order of observation.
    for order in [[BOX, LID], [LID, BOX]] {
        let mut model = Model::new();
        let a = model.owned(BOX, &[]);
        let owner = model.refer(&a);
        let b = model.create(LID, "yard", false, vec![owner]);
        order.into_iter().for_each(|kind| _ = model.deliver(kind));
        model.settle();
        model.check(&[&a], &[&b]);
        assert_eq!(model.misplaced, 1, "and it is reported");
    }
}

#[test]
fn an_object_outside_of_namespaces_is_not_deleted_for_naming_an_owner_inside() {
    for order in [[BOX, SHELF], [SHELF, BOX]] {
        let mut model = Model::new();
        let a = model.owned(BOX, &[]);
        let b = model.owned(SHELF, &[&a]);
        order.into_iter().for_each(|kind| _ = model.deliver(kind));
        model.settle();
        model.check(&[&a, &b], &[]);
        assert_eq!(model.misplaced, 1, "but it is reported");
        model.user_deletes(&a, Background);
        model.settle();
        model.check(&[&b], &[&a]);
    }
}

#[test]
fn an_owner_outside_of_namespaces_can_own_in_all_of_them() {
    let mut model = Model::new();
    let shelf = model.owned(SHELF, &[]);
    let owner = model.refer(&shelf);
    let dependents =
        ["shop", "yard"].map(|namespace| model.create(BOX, namespace, false, vec![owner.clone()]));
    let inner = model.owned(SHELF, &[&shelf]);
    model.settle();
    model.check(&[&shelf, &dependents[0], &dependents[1], &inner], &[]);
    assert_eq!(model.misplaced, 0);
    model.user_deletes(&shelf, Background);
    model.settle();
    model.check(&[], &[&shelf, &dependents[0], &dependents[1], &inner]);
}

#[test]
fn a_circle_keeps_itself_until_one_of_it_is_deleted() {
    for propagation in [Background, Foreground] {
        let mut model = Model::new();
        let a = model.owned(BOX, &[]);
        let b = model.blocking(BOX, &[&a]);
        let closing = OwnerRef { block_owner_deletion: Some(true), ..model.refer(&b) };
        model.set_owners(&a, vec![closing]);
        model.settle();
        model.check(&[&a, &b], &[]);
        model.user_deletes(&a, propagation);
        model.settle();
        model.check(&[], &[&a, &b]);
    }
}

#[test]
fn an_object_that_blocks_itself_waits_for_itself() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let own = OwnerRef { block_owner_deletion: Some(true), ..model.refer(&a) };
    model.set_owners(&a, vec![own]);
    model.settle();
    model.user_deletes(&a, Foreground);
    model.settle();
    model.check(&[&a], &[]);
}

#[test]
fn a_reference_with_a_wrong_name_is_no_owner_whatever_other_references_say() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let right = model.refer(&a);
    let wrong = OwnerRef { name: "nobody".into(), ..right.clone() };
    let mistaken = model.create(LID, "shop", false, vec![wrong]);
    let loyal = model.create(LID, "shop", false, vec![right]);
    // The dependents are observed before the owner, the mistaken one first.
    model.deliver(LID);
    model.deliver(LID);
    model.attempt(0);
    model.settle();
    model.check(&[&a, &loyal], &[&mistaken]);
}

#[test]
fn an_owner_whose_kind_is_unknown_may_exist() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let unknown = OwnerRef { kind: "Crate".into(), uid: "somebody".into(), ..model.refer(&a) };
    let b = model.create(BOX, "shop", false, vec![unknown]);
    model.settle();
    model.check(&[&a, &b], &[]);
}

#[test]
fn a_dependent_added_to_a_terminating_owner_is_deleted_with_it() {
    let mut model = Model::new();
    let a = model.owned(BOX, &[]);
    let owner = OwnerRef { block_owner_deletion: Some(true), ..model.refer(&a) };
    let held = model.create(BOX, "shop", true, vec![owner.clone()]);
    model.user_deletes(&a, Foreground);
    model.settle();
    let late = model.create(LID, "shop", false, vec![owner]);
    model.settle();
    model.check(&[&a, &held], &[&late]);
}

#[test]
fn dependents_of_an_unmonitored_kind_are_kept_and_do_not_block() {
    let mut model = Model::new();
    let lid = model.owned(LID, &[]);
    let kept = model.owned(BOX, &[&lid]);
    let waits = model.owned(BOX, &[]);
    let blocks = {
        let owner = OwnerRef { block_owner_deletion: Some(true), ..model.refer(&waits) };
        model.create(LID, "shop", true, vec![owner])
    };
    model.settle();
    model.user_deletes(&waits, Foreground);
    model.settle();
    assert!(model.has(&waits) && model.has(&blocks));
    let lids: &Kind = &kinds()[LID];
    model.stops_serving(lids);
    model.settle();
    assert!(model.has(&kept), "its owner may be there");
    assert!(!model.has(&waits), "what cannot be seen is not waited for");
}
