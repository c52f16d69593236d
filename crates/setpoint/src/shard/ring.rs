//! Assigns keys to shards, and shards to members. Pure functions.

use std::collections::BTreeMap;

use crate::Key;
use crate::config::ShardBy;

/// Returns the shard of a key.
pub(crate) fn shard_of(key: &Key, by: ShardBy, shards: u32) -> u32 {
    let hash = match (by, key.namespace()) {
        (ShardBy::Namespace, Some(namespace)) => hash(&[namespace]),
        (_, namespace) => hash(&[namespace.unwrap_or_default(), key.name()]),
    };
    (hash % u64::from(shards.max(1))) as u32
}

/// Assigns shards to members evenly, so that few shards move when members join or leave.
///
/// Each shard goes to the member that ranks highest for it (rendezvous hashing) and is not full yet.
pub(crate) fn assign<'a>(members: &[&'a str], shards: u32) -> Vec<Option<&'a str>> {
    let room = (shards as usize).div_ceil(members.len().max(1));
    let mut load: BTreeMap<&str, usize> = BTreeMap::new();
    let owner = |shard: u32| {
        let text = shard.to_string();
        let mut ranked: Vec<(u64, &'a str)> =
            members.iter().map(|member| (hash(&[member, &text]), *member)).collect();
        ranked.sort_unstable_by(|one, other| other.cmp(one));
        let (_, chosen) =
            ranked.into_iter().find(|(_, member)| load.get(member).copied().unwrap_or(0) < room)?;
        *load.entry(chosen).or_default() += 1;
        Some(chosen)
    };
    (0..shards).map(owner).collect()
}

/// The view of one member.
pub(crate) struct View<'a> {
    /// This member's name in the map.
    pub(crate) me: &'a str,
    /// All incarnations with a membership, including this member.
    pub(crate) live: &'a [String],
    /// The owner of each shard according to the map. Empty: no owner.
    pub(crate) owners: &'a [String],
    /// Returns whether an owner has lost its membership for good.
    pub(crate) gone: &'a dyn Fn(&str) -> bool,
    /// Returns whether this member does no work on a shard, and will not start any.
    pub(crate) drained: &'a dyn Fn(u32) -> bool,
}

/// What one member does: writes this map, and drains these shards.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) owners: Vec<String>,
    pub(crate) drain: Vec<u32>,
}

/// Takes shards without an owner that this member should own. Hands over shards that another should own, once drained.
pub(crate) fn plan(view: &View<'_>) -> Plan {
    let by_name: BTreeMap<&str, &str> = view.live.iter().map(|one| (member_of(one), one.as_str())).collect();
    let names: Vec<&str> = by_name.keys().copied().collect();
    let desired = assign(&names, view.owners.len() as u32);
    let mut plan = Plan::default();
    for (shard, (owner, desired)) in view.owners.iter().zip(desired).enumerate() {
        let shard = shard as u32;
        let desired = desired.and_then(|name| by_name.get(name)).copied().unwrap_or_default();
        let next = if owner == view.me {
            let handed_on = desired != view.me && !desired.is_empty();
            if handed_on && !(view.drained)(shard) {
                plan.drain.push(shard);
            }
            if handed_on && (view.drained)(shard) { desired } else { owner }
        } else if desired == view.me && (owner.is_empty() || (view.gone)(owner)) {
            view.me
        } else {
            owner
        };
        plan.owners.push(next.to_owned());
    }
    plan
}

/// Returns the member of an incarnation: `pod-a/x7k2m` belongs to `pod-a`.
pub(crate) fn member_of(incarnation: &str) -> &str {
    incarnation.rsplit_once('/').map_or(incarnation, |(member, _)| member)
}

/// FNV-1a with a final mix: the same in every process and every version.
fn hash(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for part in parts {
        for byte in part.bytes().chain([0xff]) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ (hash >> 33)
}
