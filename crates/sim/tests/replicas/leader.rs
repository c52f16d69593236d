//! Leader election: one replica works, and the others stand by with their caches filled.

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Event;
use setpoint::leader::{ElectionConfig, ExitReason};
use setpoint::{Key, Kind};
use setpoint_cluster::Components;
use setpoint_sim::{Link, World};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::*;

struct Replica {
    link: Link,
    metrics: setpoint::metrics::Metrics,
    health: setpoint::health::Health,
    stop: CancellationToken,
    running: JoinHandle<ExitReason>,
}

fn start(world: &World, name: &'static str, marks: &Marks) -> Replica {
    let link = Link::new(world.clock());
    let mut manager = world.replica(&link, &marker(name, marks));
    let config = ElectionConfig::new("default", "marker", name);
    manager.elect(config, "marker").expect("a valid configuration");
    let (metrics, health) = (manager.context().metrics.clone(), manager.context().health.clone());
    let stop = CancellationToken::new();
    let running = tokio::spawn(manager.run(stop.clone()));
    Replica { link, metrics, health, stop, running }
}

impl Replica {
    fn leads(&self) -> bool {
        self.metrics.encode().contains("leader_election_master_status{name=\"marker\"} 1")
    }

    async fn stop(self) -> ExitReason {
        self.stop.cancel();
        self.running.await.expect("no panic")
    }
}

async fn holder(world: &World) -> (String, u64) {
    let lease = world.get(&Kind::of::<Lease>(), &Key::namespaced("default", "marker")).await;
    let spec = &lease.expect("there is a lease")["spec"];
    (
        spec["holderIdentity"].as_str().unwrap_or_default().into(),
        spec["leaseTransitions"].as_u64().unwrap_or(0),
    )
}

fn simulate(inside: impl AsyncFnOnce(&World)) {
    World::simulate(1, Components::default(), Vec::new(), inside);
}

/// Checks that the work of `who` ends before that of `next` starts, with at most `gap` in between.
#[track_caller]
fn handed_over(marks: &Marks, who: &str, next: &str, gap: Duration) {
    let (Some((_, last)), Some((first, _))) = (marks.span(who), marks.span(next)) else {
        panic!("both worked: {who} and {next}")
    };
    let between: Option<Duration> = first.checked_duration_since(last);
    assert!(between.is_some_and(|between| between <= gap), "{who} to {next} took {between:?}");
}

#[test]
fn a_standby_with_warm_caches_works_as_soon_as_the_leader_released() {
    simulate(async |world| {
        let marks = Marks::default();
        create_maps(world, 3).await;
        let first = start(world, "a", &marks);
        world.pass(SECOND).await;
        let second = start(world, "b", &marks);
        world.pass(20 * SECOND).await;
        assert!(first.leads() && !second.leads());
        assert!(second.health.readyz().ok, "a standby is ready: {}", second.health.readyz().verbose());
        assert!(marks.span("b").is_none(), "only the leader works");
        assert_eq!(first.stop().await, ExitReason::Stopped);
        assert_eq!(holder(world).await, (String::new(), 0));
        world.pass(10 * SECOND).await;
        assert_eq!(holder(world).await, ("b".into(), 1));
        handed_over(&marks, "a", "b", 6 * SECOND);
        assert_eq!(second.stop().await, ExitReason::Stopped);
    });
}

#[test]
fn a_leader_cut_off_stops_before_another_takes_over() {
    simulate(async |world| {
        let marks = Marks::default();
        create_maps(world, 3).await;
        let (first, second) = (start(world, "a", &marks), start(world, "b", &marks));
        world.pass(20 * SECOND).await;
        first.link.cut();
        world.pass(60 * SECOND).await;
        assert_eq!(first.running.await.expect("no panic"), ExitReason::Lost);
        assert!(second.leads());
        handed_over(&marks, "a", "b", 24 * SECOND);
        second.stop().await;
    });
}

#[test]
fn a_paused_leader_writes_nothing_after_the_takeover() {
    for pause in [3, 7, 9, 11, 14, 16, 20, 40] {
        simulate(async |world| {
            let marks = Marks::default();
            create_maps(world, 3).await;
            let (first, second) = (start(world, "a", &marks), start(world, "b", &marks));
            world.pass(20 * SECOND).await;
            first.link.pause();
            world.pass(pause * SECOND).await;
            first.link.mend();
            world.pass(60 * SECOND).await;
            let lost = first.running.is_finished();
            assert_eq!(lost, second.leads(), "one of them leads after {pause} s");
            let overlap = marks
                .span("b")
                .is_some_and(|(began, _)| marks.span("a").is_some_and(|(_, last)| last > began));
            assert!(!overlap, "both worked after a pause of {pause} s");
            assert!(pause > 3 || !lost, "a short pause costs nothing");
            first.stop.cancel();
            second.stop().await;
        });
    }
}

#[test]
fn leader_changes_are_recorded_as_events() {
    simulate(async |world| {
        let marks = Marks::default();
        let replica = start(world, "a", &marks);
        world.pass(5 * SECOND).await;
        replica.stop().await;
        let events = world.list(&Kind::of::<Event>(), Some("default")).await;
        let recorded: Vec<_> = events
            .iter()
            .filter(|event| event["reason"] == "LeaderElection")
            .map(|event| (event["message"].as_str().unwrap_or_default(), &event["involvedObject"]["kind"]))
            .collect();
        assert_eq!(recorded.len(), 2, "{events:?}");
        assert!(recorded.iter().any(|(message, kind)| *message == "a became leader" && *kind == "Lease"));
        assert!(recorded.iter().any(|(message, _)| *message == "a stopped leading"));
    });
}

#[test]
fn a_deleted_lease_is_made_again_by_its_holder() {
    simulate(async |world| {
        let replica = start(world, "a", &Marks::default());
        world.pass(5 * SECOND).await;
        let (kind, key) = (Kind::of::<Lease>(), Key::namespaced("default", "marker"));
        world.client().delete(&kind, &key, &Default::default()).await.expect("the user's own call succeeds");
        world.pass(10 * SECOND).await;
        assert_eq!(holder(world).await, ("a".into(), 0));
        assert!(replica.leads() && !replica.running.is_finished());
        replica.stop().await;
    });
}
