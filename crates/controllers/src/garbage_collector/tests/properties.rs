//! Random histories of owners and dependents: what must stay stays, what must go goes.

use proptest::prelude::*;
use setpoint::OwnerRef;
use setpoint::client::PropagationPolicy;

use super::model::Model;
use crate::garbage_collector::uid::Uid;

/// A random step.
#[derive(Clone, Debug)]
enum Step {
    Create { kind: usize, namespace: bool, held: bool, owners: Vec<Referral> },
    Delete { which: usize, propagation: usize },
    AddOwner { which: usize, owner: Referral },
    DropOwner { which: usize },
    ReleaseHeld,
    Deliver { kind: usize },
    Attempt { nth: usize },
    Act { nth: usize },
    Release,
}

/// How a dependent refers to one of the current or former objects.
#[derive(Clone, Debug)]
struct Referral {
    which: usize,
    block: bool,
    flaw: Flaw,
}

#[derive(Clone, Copy, Debug)]
enum Flaw {
    None,
    OtherUid,
    OtherName,
    OtherKind,
    UnservedKind,
}

fn referral() -> impl Strategy<Value = Referral> {
    let flaw = prop_oneof![
        12 => Just(Flaw::None),
        1 => Just(Flaw::OtherUid),
        1 => Just(Flaw::OtherName),
        1 => Just(Flaw::OtherKind),
        1 => Just(Flaw::UnservedKind),
    ];
    (any::<usize>(), any::<bool>(), flaw).prop_map(|(which, block, flaw)| Referral { which, block, flaw })
}

fn step() -> impl Strategy<Value = Step> {
    let owners = prop::collection::vec(referral(), 0..3);
    prop_oneof![
        4 => (0..3usize, any::<bool>(), prop::bool::weighted(0.2), owners)
            .prop_map(|(kind, namespace, held, owners)| Step::Create { kind, namespace, held, owners }),
        2 => (any::<usize>(), 0..3usize).prop_map(|(which, propagation)| Step::Delete { which, propagation }),
        1 => (any::<usize>(), referral()).prop_map(|(which, owner)| Step::AddOwner { which, owner }),
        1 => any::<usize>().prop_map(|which| Step::DropOwner { which }),
        1 => Just(Step::ReleaseHeld),
        6 => (0..3usize).prop_map(|kind| Step::Deliver { kind }),
        4 => any::<usize>().prop_map(|nth| Step::Attempt { nth }),
        3 => any::<usize>().prop_map(|nth| Step::Act { nth }),
        1 => Just(Step::Release),
    ]
}

struct Run {
    model: Model,
    /// Every object that ever existed.
    ever: Vec<(Uid, OwnerRef)>,
}

impl Run {
    fn refer(&self, referral: &Referral) -> Option<OwnerRef> {
        let (_, mut owner) = pick(&self.ever, referral.which)?;
        owner.block_owner_deletion = Some(referral.block);
        match referral.flaw {
            Flaw::None => {}
            Flaw::OtherUid => owner.uid = format!("other-{}", owner.uid).into(),
            Flaw::OtherName => owner.name = "nobody".into(),
            Flaw::OtherKind => {
                let other = if &*owner.kind == "Box" { ("example.com/v1", "Lid") } else { ("v1", "Box") };
                (owner.api_version, owner.kind) = (other.0.into(), other.1.into());
            }
            Flaw::UnservedKind => owner.kind = "Virtual".into(),
        }
        Some(owner)
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Create { kind, namespace, held, owners } => {
                let owners = owners.iter().filter_map(|owner| self.refer(owner)).collect();
                let namespace = if *namespace { "shop" } else { "yard" };
                let uid = self.model.create(*kind, namespace, *held, owners);
                let reference = self.model.reference(&uid, false).expect("just created");
                self.ever.push((uid, reference));
            }
            Step::Delete { which, propagation } => {
                let propagation =
                    [PropagationPolicy::Background, PropagationPolicy::Foreground, PropagationPolicy::Orphan]
                        [*propagation];
                if let Some(uid) = pick(&self.model.uids(), *which) {
                    self.model.user_deletes(&uid, propagation);
                }
            }
            Step::AddOwner { which, owner } => {
                if let (Some(uid), Some(owner)) = (pick(&self.model.uids(), *which), self.refer(owner)) {
                    let mut owners = self.model.owners(&uid);
                    owners.retain(|other| other.uid != owner.uid);
                    owners.push(owner);
                    self.model.set_owners(&uid, owners);
                }
            }
            Step::DropOwner { which } => {
                if let Some(uid) = pick(&self.model.uids(), *which) {
                    let mut owners = self.model.owners(&uid);
                    owners.pop();
                    self.model.set_owners(&uid, owners);
                }
            }
            Step::ReleaseHeld => self.model.release_held(),
            Step::Deliver { kind } => _ = self.model.deliver(*kind),
            Step::Attempt { nth } => self.model.attempt(*nth),
            Step::Act { nth } => self.model.act(*nth),
            Step::Release => self.model.release(),
        }
    }
}

fn pick<T: Clone>(from: &[T], which: usize) -> Option<T> {
    (!from.is_empty()).then(|| from[which % from.len()].clone())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// The model asserts at every deletion that the object has no remaining owner.
    #[test]
    fn exactly_the_objects_whose_owners_are_gone_are_collected(steps in prop::collection::vec(step(), 0..60)) {
        let mut run = Run { model: Model::new(), ever: Vec::new() };
        for step in &steps {
            run.take(step);
        }
        run.model.settle();
        run.model.assert_settled();
        run.model.release_held();
        run.model.settle();
        run.model.assert_settled();
    }
}
