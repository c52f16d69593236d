//! Rollouts in a model in which ReplicaSets follow their sizes and pods become available in any order and with any
//! delay.

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Turn {
    /// The Deployment controller syncs.
    Deployment,
    /// A ReplicaSet controller syncs: pods are created, deleted and counted.
    Set(usize),
    /// Some pods of a ReplicaSet become available.
    Available(usize, i32),
}

fn turn() -> impl Strategy<Value = Turn> {
    prop_oneof![
        2 => Just(Turn::Deployment),
        2 => (0..4usize).prop_map(Turn::Set),
        2 => (0..4usize, 1..8i32).prop_map(|(set, pods)| Turn::Available(set, pods)),
    ]
}

fn take(world: &mut Vec<Model>, deployment: &Cached<Deployment>, turn: &Turn) {
    let count = world.len().max(1);
    match *turn {
        Turn::Deployment => apply(world, &sync(deployment, world)),
        Turn::Set(at) => {
            if let Some(set) = world.get_mut(at % count) {
                set.reported = set.replicas;
                set.available = set.available.min(set.replicas);
            }
        }
        Turn::Available(at, pods) => {
            if let Some(set) = world.get_mut(at % count) {
                set.available = (set.available + pods).min(set.reported);
            }
        }
    }
}

fn apply(world: &mut Vec<Model>, sync: &Sync) {
    for member in sync.members.all() {
        let size = |key: &str| member.annotations[key].parse().unwrap();
        let sized_for = (size(DESIRED_REPLICAS), size(MAX_REPLICAS));
        match world.iter_mut().find(|set| format!("v{}", set.version) == member.name) {
            Some(set) => (set.replicas, set.sized_for) = (member.replicas, sized_for),
            None => world.push(Model {
                replicas: member.replicas,
                reported: 0,
                available: 0,
                sized_for,
                ..Model::of(9, 0)
            }),
        }
    }
}

/// Takes all turns repeatedly until a sync changes nothing.
fn settle(world: &mut Vec<Model>, deployment: &Cached<Deployment>) -> bool {
    (0..200).any(|_| {
        let settled = words(&sync(deployment, world)).is_empty()
            && world.iter().all(|set| set.available == set.replicas);
        take(world, deployment, &Turn::Deployment);
        for at in 0..world.len() {
            take(world, deployment, &Turn::Set(at));
            take(world, deployment, &Turn::Available(at, 1));
        }
        settled
    })
}

fn total(world: &[Model], number: impl Fn(&Model) -> i32) -> i32 {
    world.iter().map(number).sum()
}

proptest! {
    #[test]
    fn a_rollout_stays_within_its_bounds_and_ends(
        replicas in 1..20i32, surge in 0..6i32, unavailable in 0..6i32,
        turns in prop::collection::vec(turn(), 0..60),
    ) {
        let deployment = sized(replicas, json!(surge), json!(unavailable));
        let bounds = Bounds::of(&deployment.spec);
        let sized_for = (replicas, bounds.max_total());
        let mut world = vec![Model { sized_for, ..Model::of(1, replicas) }];
        for turn in &turns {
            take(&mut world, &deployment, turn);
            prop_assert!(total(&world, |set| set.replicas) <= bounds.max_total(), "{world:?}");
            // Available pods that no size change has marked for deletion yet.
            let kept = total(&world, |set| set.available.min(set.replicas));
            prop_assert!(kept >= bounds.min_available(), "{world:?}");
        }
        prop_assert!(settle(&mut world, &deployment), "does not end: {world:?}");
        let (new, old): (Vec<_>, Vec<_>) = world.iter().partition(|set| set.version == 9);
        prop_assert_eq!((new[0].replicas, old[0].replicas), (replicas, 0));
    }

    #[test]
    fn scaling_in_the_middle_of_a_rollout_reaches_the_allowed_size_exactly(
        to in 0..40i32, surge in 0..6i32, fewer in 0..3i32,
        new in 1..10i32, old in prop::collection::vec(1..10i32, 1..3),
    ) {
        let size = new + old.iter().sum::<i32>();
        let sized_for = (size + fewer - surge.min(size - 1), size + fewer);
        // Require a new size, and one that the new ReplicaSet does not already have: that would end the old ones.
        prop_assume!(sized_for.0 != to && new != to);
        let mut world = vec![Model { sized_for, ..Model::of(9, new) }];
        world.extend((1..).zip(&old).map(|(version, replicas)| Model { sized_for, ..Model::of(version, *replicas) }));
        let deployment = sized(to, json!(surge), json!(1));
        let sync = sync(&deployment, &world);
        let allowed = if to == 0 { 0 } else { Bounds::of(&deployment.spec).max_total() };
        prop_assert_eq!(sync.members.size(), allowed);
        prop_assert!(sync.members.all().all(|member| member.replicas >= 0));
    }
}
