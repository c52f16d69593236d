//! An author's own controller in a world where everything goes wrong that can: what the framework promises holds
//! for whoever builds on it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};
use setpoint::client::{Delete, Part, Patch};
use setpoint::handler::enqueue_self;
use setpoint::reconcile::Attempting;
use setpoint::source::Selection;
use setpoint::{
    Client, Context, Event, Informer, Key, Kind, Lister, Outcome, ReconcileError, Reconciler, Runnable,
};
use setpoint_cluster::Parts;
use setpoint_sim::{Fault, History, OnCall, OnEvent, Scenario, TestCluster, World, check_all, check_faults};
use setpoint_store::EventKind;

const SECOND: Duration = Duration::from_secs(1);

/// For every ConfigMap called `keep-…` keeps as many Secrets as it asks for, under names that the API server makes
/// up: nothing but a cache that shows its own writes keeps it from making too many.
struct Keeper {
    client: Client,
    maps: Lister<ConfigMap>,
    secrets: Lister<Secret>,
    reconciles: Arc<AtomicUsize>,
}

impl Keeper {
    async fn create(&self, owner: &Key) -> Result<(), ReconcileError> {
        let body = json!({"metadata": {"generateName": "kept-", "labels": {"of": owner.name()}}});
        let created = self.client.create(&Kind::of::<Secret>(), owner.namespace(), &body).await;
        created.map(drop).attempting("create a secret")
    }

    /// The one that was looked at, and no other that has its name by now.
    async fn delete(&self, key: &Key, uid: &str) -> Result<(), ReconcileError> {
        match self.client.delete(&Kind::of::<Secret>(), key, &Delete::of_uid(uid)).await {
            Err(error) if error.is_not_found() || error.is_conflict() => Ok(()),
            deleted => deleted.attempting("delete a secret"),
        }
    }
}

impl Reconciler for Keeper {
    type Key = Key;

    async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
        self.reconciles.fetch_add(1, Ordering::Relaxed);
        let map = self.maps.get(key)?;
        let asked = map.and_then(|map| map.data.as_ref()?.get("count")?.parse().ok()).unwrap_or(0);
        let all = self.secrets.objects().list(key.namespace());
        let kept: Vec<_> = all.iter().filter(|it| it.meta().label("of") == Some(key.name())).collect();
        for _ in kept.len()..asked {
            self.create(key).await?;
        }
        for surplus in kept.iter().skip(asked) {
            self.delete(surplus.key(), &surplus.meta().uid).await?;
        }
        Ok(Outcome::Settled)
    }
}

/// What a test can look at.
#[derive(Clone, Default)]
struct Seen {
    reconciles: Arc<AtomicUsize>,
    maps: Arc<Mutex<Option<Informer>>>,
}

fn keeper(context: &Context, seen: &Seen) -> Vec<Box<dyn Runnable>> {
    let (maps, secrets) = (context.informers.of::<ConfigMap>(), context.informers.of::<Secret>());
    *seen.maps.lock() = Some(maps.clone());
    let queue = context.queue("keeper");
    maps.add_handler(enqueue_self(&queue));
    let owners = queue.clone();
    secrets.add_handler(move |event: &Event| {
        let secret = event.object();
        if let Some(owner) = secret.meta().label("of") {
            owners.add(secret.key().sibling(owner));
        }
    });
    let keeper = Keeper {
        client: context.client.clone(),
        maps: maps.lister(),
        secrets: secrets.lister(),
        reconciles: seen.reconciles.clone(),
    };
    let controller = context.controller("keeper", queue, keeper).reads_own_writes();
    vec![Box::new(controller.waits_for(&maps).waits_for(&secrets))]
}

fn parts_seen(seen: &Seen) -> Parts {
    let seen = seen.clone();
    TestCluster::new().with(move |context: &Context| keeper(context, &seen)).parts()
}

fn parts() -> Parts {
    parts_seen(&Seen::default())
}

fn key(name: &str) -> Key {
    Key::namespaced("default", name)
}

async fn ask_for(world: &World, count: usize) {
    let kind = Kind::of::<ConfigMap>();
    let body = json!({"metadata": {"name": "keep-some"}, "data": {"count": count.to_string()}});
    if world.get(&kind, &key("keep-some")).await.is_none() {
        world.create(&kind, Some("default"), body).await;
    } else {
        let patched = world.client().patch(&kind, &key("keep-some"), Part::Main, Patch::merge(&body)).await;
        patched.expect("the user's own call");
    }
}

async fn secrets(world: &World) -> Vec<Value> {
    world.list(&Kind::of::<Secret>(), Some("default")).await
}

async fn until_kept(world: &World, count: usize) {
    for _ in 0..3600 {
        if secrets(world).await.len() == count {
            return;
        }
        world.pass(SECOND).await;
    }
    panic!("{count} never got there: {:?}\n{}", secrets(world).await, world.trace().text());
}

/// Three come, one stays, and with the last word all are gone.
fn kept(world: &World) -> LocalBoxFuture<'_, ()> {
    async move {
        ask_for(world, 3).await;
        until_kept(world, 3).await;
        ask_for(world, 1).await;
        until_kept(world, 1).await;
        let delete = Delete::default();
        let deleted = world.client().delete(&Kind::of::<ConfigMap>(), &key("keep-some"), &delete).await;
        deleted.expect("the user's own call");
        until_kept(world, 0).await;
    }
    .boxed_local()
}

/// There are never more than were asked for.
fn three_at_most(history: &History) -> Result<(), String> {
    let mut there = 0;
    for (change, _) in history.changes().filter(|(_, object)| object["kind"] == "Secret") {
        match change {
            EventKind::Created => there += 1,
            EventKind::Deleted => there -= 1,
            EventKind::Updated => {}
        }
        if there > 3 {
            return Err("more than three secrets".into());
        }
    }
    Ok(())
}

fn scenario() -> Scenario {
    Scenario { name: "keeper", parts: parts(), script: kept, always: three_at_most }
}

#[track_caller]
fn check(plans: impl IntoIterator<Item = Vec<Fault>>) {
    check_faults(&scenario(), 1, plans).unwrap_or_else(|failure| panic!("{failure:?}"));
}

/// How many writes and events there are when nothing goes wrong.
fn measure() -> (usize, usize) {
    World::simulate(1, parts(), Vec::new(), async |world| {
        kept(world).await;
        world.faults().seen()
    })
}

fn each_event(what: OnEvent) -> impl Iterator<Item = Vec<Fault>> {
    (0..measure().1).map(move |nth| vec![Fault::Event { nth, what }])
}

#[test]
fn an_own_controller_survives_every_crash_every_stale_or_hidden_event_and_storms() {
    let report = check_all(&scenario(), 1, 20).unwrap_or_else(|failure| panic!("{failure:?}"));
    assert!(report.plans > 20, "{report:?}");
}

#[test]
fn a_cache_frozen_for_ten_minutes_makes_an_own_controller_create_nothing_twice() {
    check(each_event(OnEvent::Delay(600 * SECOND)));
}

#[test]
fn any_event_that_is_dropped_repeated_or_collapsed_changes_nothing_for_an_own_controller() {
    let each = [OnEvent::Hide, OnEvent::Duplicate, OnEvent::Close, OnEvent::Expire];
    check(each.into_iter().flat_map(each_event));
    check([OnEvent::Duplicate].map(|what| vec![Fault::Events { what }]));
}

#[test]
fn no_delete_is_lost_when_a_watch_expires_or_begins_too_late() {
    check(each_event(OnEvent::Expire));
    check((0..6).map(|nth| vec![Fault::Compacted { nth }]));
    // The watch expires at an event, and the one that follows the list begins too late as well.
    let (_, events) = measure();
    check((0..events).map(|nth| {
        let expired = Fault::Event { nth, what: OnEvent::Expire };
        vec![expired, Fault::Compacted { nth: 2 }, Fault::Compacted { nth: 3 }]
    }));
}

#[test]
fn watches_that_close_every_second_are_resumed_and_no_list_is_asked_for_again() {
    let faults = vec![Fault::Watches { last: SECOND }];
    World::simulate(1, parts(), faults, async |world| {
        kept(world).await;
        world.pass(300 * SECOND).await;
        let (lists, watches) = world.faults().listed_and_watched();
        assert_eq!(lists, 2, "one of each kind, at the start");
        // Each of the two is opened again at most once a second.
        assert!((400..=800).contains(&watches), "{watches} watches of two kinds in about 310 s");
    });
}

/// The events that tell of deletions are hidden: what is gone is found out by comparing two lists.
#[test]
fn a_deletion_seen_only_by_the_next_list_is_told_to_handlers() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        ask_for(world, 2).await;
        until_kept(world, 2).await;
        world.pass(10 * SECOND).await;
        // From here on the next event of any watch is hidden, and with it whatever follows for half a minute.
        let (_, events) = world.faults().seen();
        world.faults().add(Fault::Event { nth: events, what: OnEvent::Hide });
        for secret in secrets(world).await {
            let key = key(secret["metadata"]["name"].as_str().unwrap_or_default());
            let deleted = world.client().delete(&Kind::of::<Secret>(), &key, &Delete::default()).await;
            deleted.expect("the user's own call");
        }
        let (lists, _) = world.faults().listed_and_watched();
        world.pass(20 * SECOND).await;
        assert!(secrets(world).await.is_empty(), "nobody has been told");
        until_kept(world, 2).await;
        assert_eq!(world.faults().listed_and_watched().0, lists + 1);
    });
}

/// Others change what this controller does not look at: its caches follow, and it has nothing to do.
#[test]
fn bookmarks_alone_move_the_version_and_no_key_is_worked_on() {
    let seen = Seen::default();
    World::simulate(1, parts_seen(&seen), Vec::new(), async |world| {
        ask_for(world, 1).await;
        until_kept(world, 1).await;
        world.pass(10 * SECOND).await;
        let revision = || seen.maps.lock().as_ref().map_or(0, Informer::revision);
        let (before, reconciles) = (revision(), seen.reconciles.load(Ordering::Relaxed));
        let namespaces = Kind::of::<k8s_openapi::api::core::v1::Namespace>();
        for nth in 0..10 {
            world.create(&namespaces, None, json!({"metadata": {"name": format!("n{nth}")}})).await;
            world.pass(60 * SECOND).await;
        }
        assert!(revision() >= before + 9, "{} after {before}", revision());
        assert_eq!(seen.reconciles.load(Ordering::Relaxed), reconciles);
    });
}

/// A manager that starts on what an API server showed before a map went and came back.
#[test]
fn what_was_made_again_is_not_deleted_by_an_own_controller_that_starts_on_an_older_view() {
    World::simulate(1, parts(), Vec::new(), async |world| {
        ask_for(world, 1).await;
        until_kept(world, 1).await;
        world.pass(10 * SECOND).await;
        // What the next manager sees when it starts: nothing is asked for any more, and one is still there.
        let meanwhile = async {
            world.pass(SECOND).await;
            ask_for(world, 0).await;
        };
        futures::join!(world.remember_view(), meanwhile);
        until_kept(world, 0).await;
        ask_for(world, 1).await;
        until_kept(world, 1).await;
        let uid = async || secrets(world).await.first().map(|secret| secret["metadata"]["uid"].clone());
        let before = uid().await;
        world.restart_on_remembered_view().await;
        world.pass(120 * SECOND).await;
        assert_eq!(uid().await, before, "{}", world.trace().text());
        assert_eq!(secrets(world).await.len(), 1);
    });
}

#[test]
fn a_secret_that_was_created_without_an_answer_is_not_created_again() {
    let (writes, _) = measure();
    check((0..writes).map(|nth| vec![Fault::Call { nth, what: OnCall::DropAfter }]));
}

/// How many creates were tried so far.
fn tries(world: &World) -> usize {
    world
        .trace()
        .text()
        .lines()
        .filter(|line| line.contains("POST /api/v1/namespaces/default/secrets"))
        .count()
}

/// Forbidden waits for a change; an API server that fails is tried again, ever more seldom. Both recover.
#[test]
fn what_is_refused_is_asked_for_seldom_and_comes_when_it_is_allowed() {
    for (code, most) in [(403, 1), (500, 12), (503, 12), (429, 12)] {
        World::simulate(1, parts(), Vec::new(), async |world| {
            world.faults().refuse("secrets", code);
            ask_for(world, 3).await;
            world.pass(600 * SECOND).await;
            let made = tries(world);
            assert!((1..=most).contains(&made), "{made} tries in ten minutes after {code}");
            world.faults().calm();
            // A change is what a forbidden key waits for.
            ask_for(world, 2).await;
            until_kept(world, 2).await;
        });
    }
}

/// The names in a cache.
fn names(informer: &Informer) -> Vec<String> {
    informer.objects().list(None).iter().map(|object| object.key().to_string()).collect()
}

/// Four selections of one kind are four caches, each with what it selects, before and after a change.
#[test]
fn every_selection_of_a_kind_caches_what_it_selects_and_nothing_else() {
    let informers: Arc<Mutex<Vec<Informer>>> = Arc::default();
    let made = informers.clone();
    let select = move |context: &Context| -> Vec<Box<dyn Runnable>> {
        let of = |selection: Selection| context.informers.select(&Kind::of::<Secret>(), selection);
        *made.lock() = vec![
            of(Selection { namespace: Some("default".into()), ..Selection::default() }),
            of(Selection { labels: Some("of=web".into()), ..Selection::default() }),
            of(Selection { fields: Some("metadata.name=b".into()), ..Selection::default() }),
            of(Selection { metadata_only: true, ..Selection::default() }),
        ];
        Vec::new()
    };
    World::simulate(1, TestCluster::new().with(select).parts(), Vec::new(), async |world| {
        for (namespace, name, of) in
            [("default", "a", "web"), ("default", "b", "db"), ("kube-public", "b", "web")]
        {
            let body = json!({"metadata": {"name": name, "labels": {"of": of}}});
            world.create(&Kind::of::<Secret>(), Some(namespace), body).await;
        }
        world.pass(SECOND).await;
        let shown = || informers.lock().iter().map(names).collect::<Vec<_>>();
        let expected = [
            vec!["default/a", "default/b"],
            vec!["default/a", "kube-public/b"],
            vec!["default/b", "kube-public/b"],
            vec!["default/a", "default/b", "kube-public/b"],
        ];
        assert_eq!(shown(), expected);
        // What is selected no longer is gone from that cache, and from no other.
        let relabelled = Patch::merge(&json!({"metadata": {"labels": {"of": "db"}}}));
        let patched = world.client().patch(&Kind::of::<Secret>(), &key("a"), Part::Main, relabelled).await;
        patched.expect("the user's own call");
        world.pass(SECOND).await;
        assert_eq!(shown()[1], ["kube-public/b"]);
        assert_eq!(shown()[0], ["default/a", "default/b"]);
    });
}
