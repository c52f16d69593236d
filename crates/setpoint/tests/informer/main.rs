//! An informer against a server in memory that misbehaves as told, in virtual time.

mod server;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use parking_lot::Mutex;
use setpoint::{Clock, Event, Informer, Informers, Rng, Runtime};
use tokio_util::sync::CancellationToken;

use server::{Fault, Server, describe};

/// A running informer, and what a handler has been told.
struct World {
    server: Server,
    informers: Informers,
    informer: Informer,
    told: Told,
    _tasks: tokio::task::JoinSet<()>,
}

/// Writes down events: `+` added, `i` initially there, `~` updated, `=` resync, `-` deleted, `?` deleted
/// without being seen to.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Told {
    fn handler(&self) -> impl Fn(&Event) + Send + Sync + 'static {
        let told = self.0.clone();
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
            told.lock().push(format!("{sign}{}", describe(event.object())));
        }
    }

    /// What has been told since the last call.
    fn take(&self) -> String {
        std::mem::take(&mut *self.0.lock()).join(" ")
    }
}

impl World {
    /// An informer of `server`, not yet synced.
    fn start(server: Server) -> Self {
        Self::start_with(server, |_| {})
    }

    fn start_with(server: Server, set: impl FnOnce(&Informers)) -> Self {
        let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
        let informers = Informers::new(Arc::new(server.clone()), Runtime { clock, rng: Rng::seeded(1) });
        set(&informers);
        let informer = informers.of::<ConfigMap>();
        let told = Told::default();
        informer.add_handler(told.handler());
        let mut tasks = tokio::task::JoinSet::new();
        let running = informers.clone();
        tasks.spawn(async move { running.run(CancellationToken::new()).await });
        Self { server, informers, informer, told, _tasks: tasks }
    }

    async fn synced(server: Server) -> Self {
        let world = Self::start(server);
        world.informer.synced().await;
        world
    }

    fn cache(&self) -> BTreeSet<String> {
        self.informer.objects().list(None).iter().map(describe).collect()
    }

    /// Waits until the cache is at the server's version, and checks that it shows the same.
    async fn caught_up(&self) {
        self.informer.seen(&self.server.revision().to_string()).await;
        assert_eq!(self.cache(), self.server.world());
    }
}

async fn seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_there_comes_first_and_then_every_change() {
    let server = Server::new();
    server.put("a");
    server.put("b");
    let world = World::start(server);
    assert!(!world.informer.has_synced());
    world.informer.synced().await;
    assert_eq!(world.told.take(), "ia@1 ib@2");

    for change in ["a", "c"] {
        world.server.put(change);
        world.caught_up().await;
    }
    world.server.delete("a");
    world.caught_up().await;
    assert_eq!(world.told.take(), "~a@3 +c@4 -a@5");
    assert_eq!(world.server.asked(), ["list", "watch 2"]);
}

#[tokio::test(start_paused = true)]
async fn changes_that_arrive_together_are_told_once_an_object() {
    let world = World::synced(Server::new()).await;
    for _ in 0..5 {
        world.server.put("a");
        world.server.put("b");
    }
    world.server.delete("a");
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.told.take(), "+a@9 +b@10 -a@11 +a@12");
}

#[tokio::test(start_paused = true)]
async fn an_item_that_comes_twice_is_told_once() {
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
    assert_eq!(world.told.take(), "+a@1 ~a@2 -a@3 +a@4 -a@5");
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
    assert_eq!(asked.len(), 1 + 61, "a watch a second, no more");
    let versions: Vec<u64> = asked[1..].iter().map(|asked| asked[6..].parse().unwrap()).collect();
    assert!(versions.is_sorted() && *versions.last().unwrap() >= 58, "{versions:?}");
    assert_eq!(world.told.take().split(' ').count(), 60);
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
    assert_eq!(world.told.take(), "ia@1 ib@2 ~a@3 ?b@2 +c@5");
    assert_eq!(world.server.asked(), ["list", "watch 2", "list", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn compaction_between_list_and_watch_leads_to_another_list() {
    let server = Server::new();
    server.put("a");
    server.fault([Fault::CloseAfter(Duration::from_secs(1))]);
    let world = World::synced(server).await;
    seconds(1).await;
    world.server.fault([Fault::CloseAfter(Duration::from_secs(9))]);
    seconds(1).await;
    world.server.fault([Fault::Refused(410), Fault::None]);
    seconds(20).await;
    world.server.delete("a");
    world.caught_up().await;
    assert_eq!(world.told.take(), "ia@1 -a@2");
}

#[tokio::test(start_paused = true)]
async fn what_a_watch_hid_is_repaired_by_the_next_list() {
    let server = Server::new();
    server.put("a");
    server.put("gone");
    server.put("replaced");
    server.fault([Fault::Hide("gone")]);
    let world = World::synced(server).await;
    world.told.take();
    world.server.delete("gone");
    world.server.put("a");
    world.caught_up_except_hidden().await;
    assert_eq!(world.told.take(), "~a@5");
}

impl World {
    async fn caught_up_except_hidden(&self) {
        self.informer.seen(&self.server.revision().to_string()).await;
        assert_ne!(self.cache(), self.server.world());
    }
}

#[tokio::test(start_paused = true)]
async fn an_object_replaced_under_its_name_is_deleted_and_added() {
    let server = Server::new();
    server.put("a");
    server.fault([Fault::ExpireAfterItems(0)]);
    let world = World::start(server);
    world.informer.synced().await;
    world.server.delete("a");
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.told.take(), "ia@1 -a@2 +a@3");
}

#[tokio::test(start_paused = true)]
async fn bookmarks_move_the_version_and_reach_no_handler() {
    let server = Server::new();
    server.fault([Fault::CloseAfter(Duration::from_secs(10))]);
    let world = World::synced(server).await;
    for _ in 0..5 {
        world.server.bookmark();
    }
    world.informer.seen("5").await;
    assert_eq!((world.informer.revision(), world.told.take().as_str()), (5, ""));
    seconds(10).await;
    assert_eq!(world.server.asked(), ["list", "watch 0", "watch 5"]);
}

#[tokio::test(start_paused = true)]
async fn an_object_that_cannot_be_read_stalls_nothing() {
    let server = Server::new();
    server.fault([Fault::Undecodable]);
    let world = World::synced(server).await;
    world.server.put("a");
    world.caught_up().await;
    assert_eq!(world.told.take(), "+a@1");
}
