//! Sharding: every key has an owner, and never two.

use k8s_openapi::api::coordination::v1::Lease;
use setpoint::config::ShardBy;
use setpoint::leader::{ElectionConfig, ExitReason};
use setpoint::shard::{ShardingOptions, Shards};
use setpoint_sim::{Link, World};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

const KEYS: usize = 12;
const LEASE: Duration = Duration::from_secs(15);

struct Replica {
    link: Link,
    shards: Shards,
    stop: CancellationToken,
    running: JoinHandle<ExitReason>,
}

fn start(world: &World, name: &'static str, marks: &Marks) -> Replica {
    let link = Link::new(world.clock());
    let mut manager = world.replica(&link, &Components::default());
    let election = ElectionConfig::new("default", "marker", name);
    manager.shard(ShardingOptions { election, shards: 8, by: ShardBy::Hash }).expect("valid options");
    let context = manager.context().clone();
    for build in marker(name, marks).own {
        build(&context).into_iter().for_each(|runnable| manager.add(runnable));
    }
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    Replica { link, shards: context.shards, stop, running }
}

/// Checks all replicas five times a second, and records how long each key has been without an owner.
struct Watcher {
    clock: Clock,
    unowned_since: Vec<Option<Instant>>,
    longest: Duration,
}

fn key(nth: usize) -> Key {
    Key::namespaced("default", format!("mark-{nth}"))
}

impl Watcher {
    fn new(world: &World) -> Self {
        Self { clock: world.clock().clone(), unowned_since: vec![None; KEYS], longest: Duration::ZERO }
    }

    /// Lets time pass while checking.
    async fn watch(&mut self, replicas: &[&Replica], duration: Duration) {
        let until = self.clock.instant() + duration;
        while self.clock.instant() < until {
            self.look(replicas);
            self.clock.sleep(SECOND / 5).await;
        }
    }

    fn look(&mut self, replicas: &[&Replica]) {
        let now = self.clock.instant();
        for nth in 0..KEYS {
            let owners = replicas.iter().filter(|replica| replica.shards.owns(&key(nth))).count();
            assert!(owners <= 1, "{} has {owners} owners at {}", key(nth), self.clock.now());
            let since = &mut self.unowned_since[nth];
            match owners {
                0 => self.longest = self.longest.max(now - *since.get_or_insert(now)),
                _ => *since = None,
            }
        }
    }

    #[track_caller]
    fn all_owned(&self) {
        assert!(
            self.unowned_since.iter().all(Option::is_none),
            "every key has an owner: {:?}",
            self.unowned_since
        );
    }
}

/// Checks that no two replicas worked on one key at the same time: work takes half a second and ends with a mark.
#[track_caller]
fn never_two_at_once(marks: &Marks) {
    let marks = marks.0.lock();
    for (at, one) in marks.iter().enumerate() {
        let near = marks[at + 1..].iter().take_while(|other| other.at - one.at < SECOND / 2);
        for other in near {
            assert!(other.key != one.key || other.who == one.who, "{one:?} and {other:?}");
        }
    }
}

/// Returns who last worked on each key.
fn workers(marks: &Marks) -> Vec<&'static str> {
    let marks = marks.0.lock();
    (0..KEYS)
        .map(|nth| marks.iter().rev().find(|mark| mark.key == key(nth)).map_or("nobody", |mark| mark.who))
        .collect()
}

fn simulate(inside: impl AsyncFnOnce(&World, &Marks)) {
    World::simulate(1, Components::default(), Vec::new(), async |world: &World| {
        create_maps(world, KEYS).await;
        inside(world, &Marks::default()).await;
    });
}

#[test]
fn replicas_share_the_keys_and_rebalance_when_one_joins_or_leaves() {
    simulate(async |world, marks| {
        let mut watcher = Watcher::new(world);
        let first = start(world, "a", marks);
        watcher.watch(&[&first], 10 * SECOND).await;
        watcher.all_owned();
        assert!(workers(marks).iter().all(|who| *who == "a"));
        let second = start(world, "b", marks);
        watcher.watch(&[&first, &second], 20 * SECOND).await;
        watcher.all_owned();
        let by_b = workers(marks).iter().filter(|who| **who == "b").count();
        assert!((2..KEYS - 1).contains(&by_b), "both work: {:?}", workers(marks));
        assert_eq!((first.shards.owned().len(), second.shards.owned().len()), (4, 4));
        first.stop.cancel();
        watcher.watch(&[&first, &second], 20 * SECOND).await;
        assert_eq!(first.running.await.expect("no panic"), ExitReason::Stopped);
        watcher.all_owned();
        assert!(workers(marks).iter().all(|who| *who == "b"), "{:?}", workers(marks));
        assert!(watcher.longest <= 3 * SECOND, "a hand-over leaves keys alone for {:?}", watcher.longest);
        never_two_at_once(marks);
        let leases = world.list(&Kind::of::<Lease>(), Some("default")).await;
        assert_eq!(leases.len(), 2, "the map and one member are left");
        second.stop.cancel();
    });
}

/// Disrupts one of two replicas for a while, and keeps checking until it is over.
fn disturbed(pause: u64, disturb: fn(&Link)) {
    simulate(async |world, marks| {
        let mut watcher = Watcher::new(world);
        let (first, second) = (start(world, "a", marks), start(world, "b", marks));
        let both = [&first, &second];
        watcher.watch(&both, 30 * SECOND).await;
        watcher.all_owned();
        disturb(&first.link);
        watcher.watch(&both, Duration::from_secs(pause)).await;
        first.link.mend();
        watcher.watch(&both, 90 * SECOND).await;
        watcher.all_owned();
        never_two_at_once(marks);
        assert!(watcher.longest <= LEASE, "a key was without an owner for {:?}", watcher.longest);
        assert_eq!((first.shards.owned().len(), second.shards.owned().len()), (4, 4), "shared again");
        let recent = world.clock().instant() - 5 * SECOND;
        let alive = marks
            .0
            .lock()
            .iter()
            .filter(|mark| mark.at > recent)
            .map(|mark| mark.key.clone())
            .collect::<std::collections::BTreeSet<_>>();
        assert_eq!(alive.len(), KEYS, "every key is worked on");
        both.iter().for_each(|replica| replica.stop.cancel());
    });
}

#[test]
fn under_a_partition_no_key_has_two_owners_nor_none_for_longer_than_the_lease() {
    for seconds in [5, 14, 40] {
        disturbed(seconds, Link::cut);
    }
}

#[test]
fn with_a_paused_replica_no_key_has_two_owners_nor_none_for_longer_than_the_lease() {
    for seconds in [3, 11, 14, 16, 60] {
        disturbed(seconds, Link::pause);
    }
}

#[test]
fn a_replica_that_dies_is_replaced_within_the_lease() {
    simulate(async |world, marks| {
        let mut watcher = Watcher::new(world);
        let (first, second) = (start(world, "a", marks), start(world, "b", marks));
        watcher.watch(&[&first, &second], 30 * SECOND).await;
        first.running.abort();
        watcher.watch(&[&first, &second], 60 * SECOND).await;
        watcher.all_owned();
        assert!(watcher.longest <= LEASE, "a key was without an owner for {:?}", watcher.longest);
        assert!(workers(marks).iter().all(|who| *who == "b"));
        never_two_at_once(marks);
        second.stop.cancel();
    });
}
