//! Tests an informer against an in-memory server with injected faults, in virtual time.

mod backpressure;
mod own_writes;
mod server;
#[cfg(feature = "otel")]
mod telemetry;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint::metrics::Metrics;
use setpoint::source::Selection;
use setpoint::{Clock, Event, Informer, Informers, Key, Kind, Labels, Metadata, Object, Rng, Runtime};
use tokio_util::sync::CancellationToken;

use server::{Fault, Server, describe};

/// A running informer, and the events of a handler.
struct World {
    server: Server,
    informers: Informers,
    informer: Informer,
    log: EventLog,
    tasks: tokio::task::JoinSet<()>,
}

/// Records events: `+` added, `i` initial, `~` updated, `=` resync, `-` deleted, `?` deleted but the event was missed.
#[derive(Clone, Default)]
struct EventLog(Arc<Mutex<Vec<String>>>);

impl EventLog {
    fn handler(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let log = self.0.clone();
        move |event| {
            let sign = match event {
                Event::Added { initial: true, .. } => 'i',
                Event::Added { .. } => '+',
                Event::Updated { old, new } if old.same_version(new) => '=',
                Event::Updated { old, new } => {
                    assert_eq!(old.meta().uid, new.meta().uid);
                    '~'
                }
                Event::Deleted { missed: true, .. } => '?',
                Event::Deleted { .. } => '-',
            };
            log.lock().push(format!("{sign}{}", describe(event.object())));
        }
    }

    /// Takes the events since the last call.
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock()).join(" ")
    }
}

impl World {
    /// Starts an informer for `server`, without waiting for it to sync.
    fn start(server: Server) -> Self {
        Self::start_with(server, |_| {})
    }

    fn start_with(server: Server, set: impl FnOnce(&Informers)) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let informers = Informers::new(Arc::new(server.clone()), Runtime { clock, rng: Rng::seeded(1) });
        set(&informers);
        let informer = informers.of::<ConfigMap>();
        let log = EventLog::default();
        informer.add_handler(log.handler());
        let mut tasks = tokio::task::JoinSet::new();
        let running = informers.clone();
        tasks.spawn(async move { running.run(CancellationToken::new()).await });
        Self { server, informers, informer, log, tasks }
    }

    async fn synced(server: Server) -> Self {
        let world = Self::start(server);
        world.informer.wait_for_sync().await;
        world
    }

    fn cache(&self) -> BTreeSet<String> {
        self.informer.objects().list(None).iter().map(describe).collect()
    }

    /// Waits until the cache is at the server's version, and checks that both match.
    async fn caught_up(&self) {
        self.informer.wait_for_version(&self.server.revision().to_string()).await;
        assert_eq!(self.cache(), self.server.world());
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn existing_objects_come_first_then_every_change() {
    let server = Server::new();
    server.put("a");
    server.put("b");
    let world = World::start(server);
    assert!(!world.informer.has_synced());
    world.informer.wait_for_sync().await;
    assert_eq!(world.log.take(), "ia@1 ib@2");

    for change in ["a", "c"] {
        world.server.put(change);
        world.caught_up().await;
    }
    world.server.delete("a");
    world.caught_up().await;
    assert_eq!(world.log.take(), "~a@3 +c@4 -a@5");
    assert_eq!(world.server.asked(), ["list", "watch 2"]);
}

#[tokio::test(start_paused = true)]
async fn changes_that_arrive_together_are_one_event_per_object() {
    let world = World::synced(Server::new()).await;
    for _ in 0..5 {
        world.server.put("a");
        world.server.put("b");
    }
    world.server.delete("a");
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.log.take(), "+a@9 +b@10 -a@11 +a@12");
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_item_is_reported_once() {
    let server = Server::new();
    server.fault([Fault::Twice]);
    let world = World::synced(server).await;
    for step in ["put", "put", "delete", "put", "delete"] {
        if step == "put" {
            world.server.put("a");
        } else {
            world.server.delete("a");
        }
        world.caught_up().await;
        seconds(1).await;
    }
    assert_eq!(world.log.take(), "+a@1 ~a@2 -a@3 +a@4 -a@5");
}

#[tokio::test(start_paused = true)]
async fn a_watch_closed_every_second_resumes_and_never_lists_again() {
    let server = Server::new();
    server.fault((0..60).map(|_| Fault::CloseAfter(Duration::from_secs(1))));
    let world = World::synced(server).await;
    for i in 0..60 {
        world.server.put(&format!("object-{i}"));
        seconds(1).await;
    }
    world.caught_up().await;
    let asked = world.server.asked();
    assert_eq!(asked.iter().filter(|asked| *asked == "list").count(), 1);
    assert!(asked.len() <= 1 + 61, "a watch a second, no more: {asked:?}");
    let versions: Vec<u64> = asked[1..].iter().map(|asked| asked[6..].parse().unwrap()).collect();
    assert!(versions.is_sorted() && *versions.last().unwrap() >= 58, "{versions:?}");
    assert_eq!(world.log.take().split(' ').count(), 60);
}

#[tokio::test(start_paused = true)]
async fn a_410_in_mid_watch_loses_no_delete() {
    let server = Server::new();
    server.put("a");
    server.put("b");
    server.fault([Fault::ExpireAfterItems(1)]);
    let world = World::synced(server).await;
    world.server.put("a");
    world.server.delete("b");
    world.server.put("c");
    world.caught_up().await;
    assert_eq!(world.log.take(), "ia@1 ib@2 ~a@3 +c@5 ?b@2");
    assert_eq!(world.server.asked(), ["list", "watch 2", "list", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_between_two_watches_leads_to_another_list() {
    let server = Server::new();
    server.put("a");
    let world = World::synced(server).await;
    world.server.cut();
    world.server.delete("a");
    world.server.compact();
    world.caught_up().await;
    assert_eq!(world.log.take(), "ia@1 ?a@1");
    assert_eq!(world.server.asked(), ["list", "watch 1", "watch 1", "list", "watch 2"]);
}

#[tokio::test(start_paused = true)]
async fn missed_events_are_repaired_by_the_next_list() {
    let server = Server::new();
    for name in ["stays", "hidden"] {
        server.put(name);
    }
    server.fault([Fault::Hide("hidden")]);
    let world = World::synced(server).await;
    world.log.take();

    world.server.delete("hidden");
    world.server.put("stays");
    world.informer.wait_for_version("4").await;
    assert_eq!(world.log.take(), "~stays@4");

    world.server.cut();
    world.server.bookmark();
    world.server.compact();
    world.caught_up().await;
    assert_eq!(world.log.take(), "?hidden@2", "unchanged objects cause no event");
}

#[tokio::test(start_paused = true)]
async fn an_object_replaced_under_its_name_is_deleted_and_added() {
    let server = Server::new();
    server.put("a");
    let world = World::synced(server).await;
    world.server.cut();
    world.server.delete("a");
    world.server.put("a");
    world.server.compact();
    world.caught_up().await;
    assert_eq!(world.log.take(), "ia@1 ?a@1 +a@3");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_version_and_reach_no_handler() {
    let world = World::synced(Server::new()).await;
    for _ in 0..5 {
        world.server.bookmark();
    }
    world.informer.wait_for_version("5").await;
    assert_eq!((world.informer.revision(), world.log.take().as_str()), (5, ""));
    world.server.cut();
    seconds(1).await;
    assert_eq!(world.server.asked(), ["list", "watch 0", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stalls_nothing_and_is_counted() {
    let server = Server::new();
    server.fault([Fault::Undecodable]);
    let metrics = Metrics::new();
    let world = World::start_with(server, |informers| informers.observe(&metrics));
    world.informer.wait_for_sync().await;
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.log.take(), "+a@1");
    let labels = r#"{group="",name="all",resource="configmaps",version="v1"}"#;
    assert!(metrics.encode().contains(&format!("informer_undecodable_objects_total{labels} 1\n")));
}

#[tokio::test(start_paused = true)]
async fn a_hanging_list_is_retried() {
    let server = Server::new();
    server.put("a");
    server.hang_lists(2);
    let world = World::start_with(server, |informers| informers.list_within(Duration::from_secs(60)));
    seconds(59).await;
    assert!(!world.informer.has_synced());
    seconds(120).await;
    assert_eq!((world.informer.has_synced(), world.log.take().as_str()), (true, "ia@1"));
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_differs_from_the_server_is_detected_and_repaired() {
    let server = Server::new();
    for name in ["stays", "hidden"] {
        server.put(name);
    }
    server.fault([Fault::Hide("hidden")]);
    let metrics = Metrics::new();
    let world = World::start_with(server, |informers| {
        informers.observe(&metrics);
        informers.check_consistency_every(Duration::from_secs(60));
    });
    world.informer.wait_for_sync().await;
    seconds(61).await;
    world.server.delete("hidden");
    world.server.put("stays");
    world.informer.wait_for_version("4").await;
    assert_eq!(world.cache().len(), 2, "the watch missed the deletion");
    seconds(60).await;
    assert_eq!(world.cache(), world.server.world());
    seconds(600).await;
    let labels = r#"{group="",name="all",resource="configmaps",version="v1"}"#;
    assert!(metrics.encode().contains(&format!("informer_inconsistencies_total{labels} 1\n")));
}

#[tokio::test(start_paused = true)]
async fn each_informer_sees_its_own_selection_of_a_kind() {
    let world = World::synced(Server::new()).await;
    let kind = world.informer.kind().clone();
    let of = |selection: Selection| world.informers.select(&kind, selection);
    let shop = of(Selection { namespace: Some("shop".into()), ..Selection::default() });
    let web = of(Selection { labels: Some("app=web".into()), ..Selection::default() });
    let bare = of(Selection { metadata_only: true, ..Selection::default() });
    for (informer, expected) in [(&shop, "namespace=shop"), (&web, "labels=app=web"), (&bare, "metadata")] {
        informer.wait_for_sync().await;
        assert_eq!(informer.selection().to_string(), expected);
    }
    assert_eq!(world.server.asked().iter().filter(|asked| *asked == "list").count(), 4);
}

#[tokio::test(start_paused = true)]
async fn failing_lists_are_tried_again_at_growing_intervals() {
    let server = Server::new();
    server.put("a");
    server.fail_lists([503; 20]);
    let world = World::start(server);
    seconds(60).await;
    let tries = world.server.asked().len();
    assert!(
        (4..=7).contains(&tries),
        "0.8 s, 1.6 s, … each stretched up to twice: {tries} tries in a minute"
    );
    assert!(!world.informer.has_synced());
    seconds(20 * 60).await;
    assert!(world.informer.has_synced());
    assert_eq!(world.log.take(), "ia@1");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_always_answers_410_is_not_overrun() {
    let server = Server::new();
    server.fault((0..10_000).map(|_| Fault::Refused(410)));
    let world = World::start(server);
    seconds(600).await;
    let lists = world.server.asked().iter().filter(|asked| *asked == "list").count();
    assert!((10..=30).contains(&lists), "{lists} lists in ten minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_is_resumed_without_a_list() {
    let world = World::synced(Server::new()).await;
    world.server.asked();
    world.server.fault((0..10).map(|_| Fault::Refused(503)));
    world.server.cut();
    seconds(10 * 60).await;
    world.server.put("a");
    world.caught_up().await;
    assert!(world.server.asked().iter().all(|asked| asked == "watch 0"));
}

#[tokio::test(start_paused = true)]
async fn watches_that_keep_failing_for_unknown_reasons_lead_to_a_list() {
    let world = World::synced(Server::new()).await;
    world.server.asked();
    world.server.fault((0..3).map(|_| Fault::Refused(500)));
    world.server.cut();
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.server.asked(), ["watch 0", "watch 0", "watch 0", "list", "watch 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_gets_the_cache_and_then_every_change_once() {
    let server = Server::new();
    (0..100).for_each(|i| _ = server.put(&format!("object-{i:03}")));
    let world = World::synced(server).await;
    let late = EventLog::default();
    world.server.put("object-000");
    world.informer.add_handler(late.handler());
    assert!(!world.informer.has_synced(), "one handler has not been notified yet");
    world.server.put("object-001");
    world.informer.wait_for_sync().await;
    world.caught_up().await;
    let log = late.take();
    let log: Vec<&str> = log.split(' ').collect();
    assert_eq!(log.iter().filter(|event| event.starts_with('i')).count(), 100);
    for (name, newest) in [("object-000", "object-000@101"), ("object-001", "object-001@102")] {
        let last = log.iter().rev().find(|event| event[1..].starts_with(name)).unwrap();
        assert_eq!(&last[1..], newest);
    }
}

#[tokio::test(start_paused = true)]
async fn a_removed_handler_gets_no_more_events() {
    let world = World::synced(Server::new()).await;
    let other = EventLog::default();
    let registration = world.informer.add_handler(other.handler());
    world.informer.wait_for_sync().await;
    registration.remove();
    world.server.put("a");
    world.caught_up().await;
    assert_eq!((other.take().as_str(), world.log.take().as_str()), ("", "+a@1"));
}

#[tokio::test(start_paused = true)]
async fn informers_come_and_go_while_others_run() {
    let world = World::synced(Server::new()).await;
    world.server.put("a");
    let kind = world.informer.kind().clone();
    let selection = Selection { namespace: Some("default".into()), ..Selection::default() };
    let second = world.informers.select(&kind, selection.clone());
    second.wait_for_sync().await;
    assert_eq!(second.objects().len(), 1);

    world.informers.remove(&second);
    seconds(1).await;
    world.server.put("b");
    world.caught_up().await;
    assert_eq!(second.objects().len(), 1, "a removed informer keeps its last objects");
    let third = world.informers.select(&kind, selection);
    third.wait_for_sync().await;
    assert_eq!(third.objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_same_kind_and_selection_is_the_same_informer() {
    let world = World::synced(Server::new()).await;
    world.informers.of::<ConfigMap>().wait_for_sync().await;
    assert_eq!(world.server.asked(), ["list", "watch 0"]);
}

#[tokio::test(start_paused = true)]
async fn dropping_the_run_ends_every_task() {
    let mut world = World::synced(Server::new()).await;
    world.tasks.shutdown().await;
    world.server.put("a");
    seconds(600).await;
    assert!(world.informer.objects().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_resync_sends_every_object_again() {
    let server = Server::new();
    for name in ["a", "b"] {
        server.put(name);
    }
    let world = World::start_with(server, |informers| informers.resync_every(Duration::from_secs(60)));
    world.informer.wait_for_sync().await;
    world.log.take();
    seconds(59).await;
    assert_eq!(world.log.take(), "");
    seconds(62).await;
    assert_eq!(world.log.take(), "=a@1 =b@2");
}

#[tokio::test(start_paused = true)]
async fn a_transform_decides_what_is_cached() {
    let server = Server::new();
    server.put_labelled("a", "web");
    let world = World::start_with(server, |informers| {
        let bare = |object: Object| {
            let meta = Metadata { labels: Labels::default(), ..object.meta().clone() };
            Object::with_metadata(meta, bytes::Bytes::new())
        };
        informers.transform(&Kind::of::<ConfigMap>(), Arc::new(bare));
    });
    world.informer.wait_for_sync().await;
    let cached = world.informer.objects().list(None);
    assert!(cached[0].meta().labels.is_empty() && cached[0].raw().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_write_is_waited_for() {
    let world = World::synced(Server::new()).await;
    let written = world.server.put("a");
    assert!(world.informer.objects().get(written.key()).is_none());
    world.informer.wait_for_version(&written.meta().resource_version).await;
    assert!(world.informer.objects().get(written.key()).unwrap().same_version(&written));
}

/// Whatever happens to the watches, the cache ends up matching the server, and so does the state of a handler that only
/// applies the events it gets.
#[tokio::test(start_paused = true)]
async fn the_cache_converges_after_any_mix_of_faults() {
    for seed in 0..200 {
        let rng = Rng::seeded(seed);
        let server = Server::new();
        server.fault((0..50).map(|_| match rng.below(7) {
            0 => Fault::CloseAfter(Duration::from_millis(rng.below(3000))),
            1 => Fault::CloseAfterItems(rng.below(5) as usize),
            2 => Fault::ExpireAfterItems(rng.below(5) as usize),
            3 => Fault::Twice,
            4 => Fault::Refused([410, 429, 500, 503][rng.below(4) as usize]),
            5 => Fault::Undecodable,
            _ => Fault::None,
        }));
        let world = World::start(server);
        let believer = Believer::default();
        world.informer.add_handler(believer.handler());
        for _ in 0..100 {
            let name = format!("object-{}", rng.below(8));
            match rng.below(6) {
                0 if world.server.exists(&name) => world.server.delete(&name),
                1 => world.server.bookmark(),
                2 => world.server.cut(),
                3 if rng.below(4) == 0 => world.server.compact(),
                _ => _ = world.server.put(&name),
            }
            tokio::time::sleep(Duration::from_millis(rng.below(800))).await;
        }
        world.caught_up().await;
        assert_eq!(believer.world(), world.server.world(), "seed {seed}");
    }
}

/// Applies the events it gets, and panics on contradictions.
#[derive(Clone, Default)]
struct Believer(Arc<Mutex<BTreeMap<Key, Object>>>);

impl Believer {
    fn handler(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let believed = self.0.clone();
        move |event| {
            let mut believed = believed.lock();
            let object = event.object();
            let before = match event {
                Event::Deleted { .. } => believed.remove(object.key()),
                _ => believed.insert(object.key().clone(), object.clone()),
            };
            match (event, before) {
                (Event::Added { .. }, None) => {}
                (Event::Updated { old, .. }, Some(before)) => assert!(old.same_version(&before)),
                (Event::Deleted { .. }, Some(before)) => assert_eq!(before.meta().uid, object.meta().uid),
                (event, before) => panic!("{event:?} when it was {before:?}"),
            }
        }
    }

    fn world(&self) -> BTreeSet<String> {
        self.0.lock().values().map(describe).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn informer_metrics_are_exported() {
    let server = Server::new();
    server.put("a");
    let metrics = Metrics::new();
    let world = World::start_with(server, |informers| informers.observe(&metrics));
    world.informer.wait_for_sync().await;
    world.server.put("b");
    world.caught_up().await;
    let text = metrics.encode();
    let labels = r#"{group="",name="all",resource="configmaps",version="v1"}"#;
    for line in [
        format!("informer_queued_items{labels} 0"),
        format!("informer_processing_latency_seconds_count{labels} 2"),
        format!("informer_store_resource_version{labels} 2"),
    ] {
        assert!(text.lines().any(|shown| shown == line), "{line} is not in\n{text}");
    }
}
