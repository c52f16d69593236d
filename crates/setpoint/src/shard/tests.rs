use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::ring::{Plan, View, assign, member_of, plan, shard_of};
use crate::Key;
use crate::config::ShardBy;

const SHARDS: u32 = 64;

#[test]
fn a_key_belongs_to_one_part_by_its_namespace_or_by_all_of_it() {
    let part = |namespace: &str, name: &str, by| shard_of(&Key::namespaced(namespace, name), by, SHARDS);
    assert_eq!(part("shop", "a", ShardBy::Namespace), part("shop", "b", ShardBy::Namespace));
    let names: BTreeSet<u32> =
        (0..100).map(|nth| part("shop", &format!("web-{nth}"), ShardBy::Hash)).collect();
    assert!(names.len() > 40, "a hundred names are spread over {} parts", names.len());
    let cluster = |by| shard_of(&Key::cluster("node-1"), by, SHARDS);
    assert_eq!(cluster(ShardBy::Namespace), cluster(ShardBy::Hash), "without a namespace the name decides");
    // Replicas of different versions have to agree, so these values never change.
    assert_eq!([part("shop", "a", ShardBy::Hash), part("shop", "a", ShardBy::Namespace)], [1, 7]);
}

#[test]
fn parts_are_spread_evenly_and_few_move_when_members_come_and_go() {
    let members: Vec<String> = (0..5).map(|nth| format!("pod-{nth}")).collect();
    let names: Vec<&str> = members.iter().map(String::as_str).collect();
    let (four, five) = (assign(&names[..4], SHARDS), assign(&names, SHARDS));
    let load = five.iter().fold(BTreeMap::<_, usize>::new(), |mut load, owner| {
        *load.entry(*owner).or_default() += 1;
        load
    });
    assert!(load.values().all(|parts| (9..=13).contains(parts)), "{load:?}");
    let moved = four.iter().zip(&five).filter(|(before, after)| before != after).count();
    assert!(moved <= 24, "{moved} of {SHARDS} parts moved for one member of five");
    assert!(assign(&[], 3).iter().all(Option::is_none));
}

fn text(owners: &[&str]) -> Vec<String> {
    owners.iter().map(|owner| (*owner).to_owned()).collect()
}

#[test]
fn shards_are_handed_over_only_when_drained() {
    let me = "a/1";
    let check =
        |live: &[&str], owners: &[&str], gone: &[&str], drained: &[u32], expected: (&[&str], &[u32])| {
            let view = View {
                me,
                live: &text(live),
                owners: &text(owners),
                gone: &|owner| gone.contains(&owner),
                drained: &|shard| drained.contains(&shard),
            };
            let expected = Plan { owners: text(expected.0), drain: expected.1.to_vec() };
            assert_eq!(plan(&view), expected, "{live:?} {owners:?} {gone:?} {drained:?}");
        };
    check(&["a/1"], &["", "", ""], &[], &[], (&["a/1", "a/1", "a/1"], &[]));
    check(&["a/1"], &["b/1", "a/1", "b/1"], &[], &[], (&["b/1", "a/1", "b/1"], &[]));
    check(&["a/1"], &["b/1", "a/1", "b/1"], &["b/1"], &[], (&["a/1", "a/1", "a/1"], &[]));
    // Shards of an earlier incarnation of this member have no owner.
    check(&["a/1"], &["a/0", "a/0", "a/1"], &["a/0"], &[], (&["a/1", "a/1", "a/1"], &[]));
    let desired = assign(&["a", "b"], 4);
    let of_b: Vec<u32> = (0..4).filter(|shard| desired[*shard as usize] == Some("b")).collect();
    assert_eq!(of_b.len(), 2);
    check(&["a/1", "b/7"], &["a/1"; 4], &[], &[], (&["a/1"; 4], &of_b));
    let handed: Vec<&str> =
        desired.iter().map(|owner| if *owner == Some("b") { "b/7" } else { "a/1" }).collect();
    check(&["a/1", "b/7"], &["a/1"; 4], &[], &of_b, (&handed, &[]));
}

proptest! {
    /// Members that plan one after the other, each on the current map, converge: every shard ends up with its intended
    /// owner, regardless of its previous owner.
    #[test]
    fn members_agree_after_two_rounds_each(
        count in 1usize..6,
        before in proptest::collection::vec(0usize..8, 1..40),
    ) {
        let live: Vec<String> = (0..count).map(|nth| format!("pod-{nth}/x")).collect();
        let mut owners: Vec<String> =
            before.iter().map(|nth| if *nth == 7 { String::new() } else { format!("pod-{nth}/x") }).collect();
        for _ in 0..2 {
            for me in &live {
                let view = View {
                    me,
                    live: &live,
                    owners: &owners,
                    gone: &|owner| !live.iter().any(|one| one == owner),
                    drained: &|_| true,
                };
                owners = plan(&view).owners;
            }
        }
        let names: Vec<&str> = live.iter().map(|one| member_of(one)).collect();
        let desired: Vec<&str> = assign(&names, owners.len() as u32).into_iter().flatten().collect();
        let owned: Vec<&str> = owners.iter().map(|one| member_of(one)).collect();
        prop_assert_eq!(owned, desired);
    }
}
