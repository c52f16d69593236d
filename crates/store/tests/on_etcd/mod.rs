//! What is special about a store on etcd: other writers, broken connections, leases, and what others have stored.

mod faulty;
mod migrate;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use setpoint_clock::Clock;
use setpoint_store::etcd::*;
use setpoint_store::*;

use self::faulty::Faulty;
use crate::engines::etcd::{TextCodec, options, server, turn};
use crate::engines::{World, brief, drain, pods, text};

/// An etcd prefix, and a way to break the connections to it.
struct Place {
    etcd: Faulty,
    options: EtcdOptions,
}

impl Place {
    async fn new() -> Self {
        let etcd = Faulty::new(server().client().await);
        Self { etcd, options: options(Limits::default()) }
    }

    /// Opens another store on the same records.
    async fn open(&self) -> World {
        self.open_through(self.etcd.clone()).await
    }

    async fn open_through(&self, client: impl EtcdClient) -> World {
        let (client, clock) = (Arc::new(client), Clock::system());
        let store = EtcdStore::open(client, Arc::new(TextCodec), None, clock.clone(), self.options.clone());
        World::with_store(Arc::new(store.await.expect("etcd answers")), clock)
    }

    fn key(&self, path: &str) -> bytes::Bytes {
        format!("{}/{path}", self.options.prefix).into()
    }

    /// Writes a key as another program would.
    async fn put(&self, path: &str, value: &str) {
        let key = self.key(path);
        let txn = Txn {
            compare: Compare::Version { key: key.clone(), version: 0 },
            then: Op::Put { key, value: value.to_owned().into(), lease: 0 },
            otherwise: None,
        };
        assert!(self.etcd.txn(txn).await.unwrap().succeeded);
    }

    async fn read(&self, path: &str) -> Option<bytes::Bytes> {
        let request = RangeRequest { key: self.key(path), ..RangeRequest::default() };
        self.etcd.range(request).await.unwrap().kvs.pop().map(|kv| kv.value)
    }
}

/// Returns the record at a path with every change that was acknowledged before.
async fn latest(world: &World, path: &str) -> Option<Arc<Record>> {
    let at = world.store.latest().await.unwrap();
    world.store.get(&pods().key(path), at).await.unwrap()
}

async fn list(world: &World) -> Vec<String> {
    let at = world.store.latest().await.unwrap();
    let page = world.list("", ListOptions { at, ..ListOptions::default() }).await.unwrap();
    page.records.iter().map(|record| format!("{}={}", record.key.path, text(record))).collect()
}

#[tokio::test]
async fn servers_see_what_the_others_have_acknowledged() {
    let _turn = turn().await;
    let place = Place::new().await;
    let (one, other) = (place.open().await, place.open().await);
    let mut watch = other.watch("", other.store.revision());
    for round in 0..20 {
        let path = format!("{round:02}");
        let created = one.create(&path).await;
        assert_eq!(latest(&other, &path).await.unwrap().modified, created);
        let updated = other.update(&path, "new").await;
        let seen = latest(&one, &path).await.unwrap();
        assert_eq!((seen.created, seen.modified, text(&seen)), (created, updated, "new"));
        assert_eq!(drain(&mut watch).unwrap(), [format!("+{path}@{created}"), format!("~{path}@{updated}")]);
        one.delete(&path).await;
        assert!(latest(&other, &path).await.is_none());
        drain(&mut watch).unwrap();
    }
    assert_eq!(list(&other).await, [""; 0]);
}

#[tokio::test]
async fn a_write_over_the_write_of_another_server_conflicts_and_shows_it() {
    let _turn = turn().await;
    let place = Place::new().await;
    let (one, other) = (place.open().await, place.open().await);
    place.etcd.cut_watches(true);
    let third = place.open_through(server().client().await).await;
    third.create("a").await;
    place.etcd.cut_watches(false);
    for world in [one, other] {
        // Whether it has seen the record or not.
        let Err(Error::Conflict { current: Some(current) }) =
            world.put(pods().key("a"), Expect::Absent, "b", None).await
        else {
            panic!("it exists")
        };
        assert_eq!(text(&current), "a");
        let expect = Expect::Revision(current.modified);
        world.put(pods().key("a"), expect, "a", None).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_server_starts_with_all_records() {
    let _turn = turn().await;
    let place = Place::new().await;
    let one = place.open().await;
    for n in 0..2500 {
        place.put(&format!("pods/ns/{n:04}"), &format!("|{n}")).await;
    }
    one.create("other").await;
    let world = place.open().await;
    assert_eq!((world.store.count(&pods().all()).await.unwrap(), list(&world).await.len()), (2501, 2501));
    assert!(world.store.revision() >= one.store.revision());
    assert_eq!(text(&world.get("ns/2499").await.unwrap()), "2499");
}

#[tokio::test]
async fn history_before_the_start_is_read_from_etcd() {
    let _turn = turn().await;
    let place = Place::new().await;
    let one = place.open().await;
    for n in 0..5 {
        one.create(&format!("ns/{n}")).await;
    }
    let before = one.store.revision();
    one.delete("ns/3").await;
    one.update("ns/4", "new").await;
    let world = place.open().await;
    assert!(world.store.watch(pods().all(), before).is_err(), "changes are not");
    let options = ListOptions { at: Some(before), limit: 2, ..ListOptions::default() };
    let page = world.list("ns/", options.clone()).await.unwrap();
    assert_eq!((page.records.len(), page.remaining, page.revision), (2, 3, before));
    let page =
        world.list("ns/", ListOptions { limit: 0, from: Some(just_after("ns/1")), ..options }).await.unwrap();
    let values: Vec<_> = page.records.iter().map(|record| text(record)).collect();
    assert_eq!((values, page.remaining), (vec!["ns/2", "ns/3", "ns/4"], 0));
    assert_eq!(world.get_at("ns/3", before).await.unwrap().as_deref(), Some("ns/3"));
    let only = pods().only("ns/4");
    let at_start = ListOptions { at: Some(before), ..ListOptions::default() };
    assert_eq!(text(&world.store.list(&only, at_start).await.unwrap().records[0]), "ns/4");
    place.etcd.compact(before + 1).await.unwrap();
    assert!(matches!(world.get_at("ns/3", before).await, Err(Error::Compacted { .. })));
}

#[tokio::test]
async fn a_broken_watch_continues_where_it_was() {
    let _turn = turn().await;
    let place = Place::new().await;
    let (world, other) = (place.open().await, place.open_through(server().client().await).await);
    world.create("a").await;
    let mut watch = world.watch("", world.store.revision());
    place.etcd.cut_watches(true);
    let mut expected = Vec::new();
    for path in ["b", "c"] {
        expected.push(format!("+{path}@{}", other.create(path).await));
    }
    // The cache is behind, but reads of the latest are not.
    assert_eq!(list(&world).await, ["a=a", "b=b", "c=c"]);
    assert!(world.get("c").await.is_none());
    assert!(world.store.health().await.is_err());
    place.etcd.cut_watches(false);
    let mut seen = Vec::new();
    while seen.len() < 2 {
        seen.extend(watch.next().await.unwrap().iter().map(|event| brief(event)));
    }
    assert_eq!(seen, expected);
    assert_eq!(world.store.health().await, Ok(()));
}

#[tokio::test]
async fn a_server_that_missed_compacted_changes_starts_over() {
    let _turn = turn().await;
    let place = Place::new().await;
    let (world, other) = (place.open().await, place.open_through(server().client().await).await);
    for path in ["a", "b"] {
        world.create(path).await;
    }
    let mut watch = world.watch("", world.store.revision());
    let mut quiet = world.store.watch(Resource::new("nodes").all(), world.store.revision()).unwrap();
    // The other server has seen them too.
    latest(&other, "b").await.unwrap();
    place.etcd.cut_watches(true);
    latest(&other, "a").await.expect("it was created");
    other.delete("a").await;
    let newest = other.create("c").await;
    place.etcd.compact(newest).await.unwrap();
    place.etcd.cut_watches(false);
    assert!(matches!(watch.next().await, Err(WatchError::FellBehind { .. })));
    assert!(matches!(quiet.next().await, Err(WatchError::FellBehind { .. })));
    assert_eq!(list(&world).await, ["b=b", "c=c"]);
    let mut again = world.watch("", newest);
    let updated = world.update("b", "new").await;
    assert_eq!(drain(&mut again).unwrap(), [format!("~b@{updated}")]);
}

#[tokio::test]
async fn a_write_whose_answer_is_lost_fails_and_happens_at_most_once() {
    let _turn = turn().await;
    let place = Place::new().await;
    let world = place.open().await;
    let mut watch = world.watch("", world.store.revision());
    place.etcd.loses_answers.store(true, Ordering::Relaxed);
    let write = world.put(pods().key("a"), Expect::Absent, "a", None).await;
    assert!(matches!(write, Err(Error::Unavailable(_))), "{write:?}");
    place.etcd.loses_answers.store(false, Ordering::Relaxed);
    let record = latest(&world, "a").await.unwrap();
    assert_eq!(drain(&mut watch).unwrap(), [format!("+a@{}", record.modified)]);
}

#[tokio::test]
async fn what_cannot_be_read_is_kept_and_never_replaced() {
    let _turn = turn().await;
    let place = Place::new().await;
    place.put("unknown/x", "?").await;
    place.put("pods/bad", "no bar").await;
    place.put("pods/good", "|good").await;
    let world = place.open().await;
    place.put("unknown/y", "?").await;
    place.put("pods/worse", "no bar either").await;
    assert_eq!(text(&latest(&world, "good").await.unwrap()), "good");
    for path in ["bad", "worse"] {
        let error = world.store.get(&pods().key(path), None).await.unwrap_err();
        assert!(error.to_string().contains("there is no bar"), "{error}");
    }
    assert!(matches!(world.list("", ListOptions::default()).await, Err(Error::Transform(_))));
    let known = world.watch("", world.store.revision());
    let over = world.put(pods().key("bad"), Expect::Revision(known.revision()), "new", None).await;
    assert!(over.is_err());
    assert_eq!(place.read("pods/bad").await.as_deref(), Some(&b"no bar"[..]));
    assert_eq!(place.read("unknown/x").await.as_deref(), Some(&b"?"[..]));
}

#[tokio::test]
async fn a_record_in_an_old_form_is_stale() {
    let _turn = turn().await;
    let place = Place::new().await;
    place.put("pods/a", "|old").await;
    let world = place.open().await;
    let record = world.get("a").await.unwrap();
    assert!(world.store.is_stale(&record));
    world.update("a", "new").await;
    assert!(!world.store.is_stale(&world.get("a").await.unwrap()));
}

#[tokio::test]
async fn records_that_share_a_lease_expire_in_one_revision() {
    let _turn = turn().await;
    let place = Place::new().await;
    let world = place.open().await;
    let mut watch = world.watch("", world.store.revision());
    for path in ["a", "b"] {
        world.create_for(path, Duration::from_secs(100)).await;
    }
    world.create("forever").await;
    server().end_leases();
    let mut seen = Vec::new();
    while seen.len() < 5 {
        seen.extend(watch.next().await.unwrap().iter().map(|event| brief(event)));
    }
    let expired: Vec<_> = seen[3..].iter().map(|event| event.split_once('@').unwrap()).collect();
    assert_eq!(expired[0].1, expired[1].1, "{seen:?}");
    assert_eq!(watch.revision(), world.store.revision());
    assert_eq!(list(&world).await, ["forever=forever"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_record_is_deleted_in_virtual_time() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let (client, options) = (Arc::new(EtcdModel::new(clock.clone())), options(Limits::default()));
    let store = EtcdStore::open(client, Arc::new(TextCodec), None, clock.clone(), options).await.unwrap();
    let world = World::with_store(Arc::new(store), clock);
    let mut watch = world.watch("", 1);
    for (path, after) in [("a", 0), ("b", 4), ("c", 60)] {
        world.advance(Duration::from_secs(after)).await;
        world.create_for(path, Duration::from_secs(100)).await;
    }
    let began = world.clock.now();
    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.extend(watch.next().await.unwrap().iter().map(|event| brief(event)));
    }
    // The first lease lives 5 seconds longer than needed, so the second record shares it.
    assert_eq!(seen[3..], ["-a@5", "-b@5", "-c@6"]);
    assert_eq!(world.clock.now().duration_since(began).as_secs(), 105);
}

/// One etcd, until it is replaced by another.
struct Replaced {
    one: EtcdModel,
    other: EtcdModel,
    is_replaced: AtomicBool,
}

impl Replaced {
    fn current(&self) -> &EtcdModel {
        if self.is_replaced.load(Ordering::Relaxed) { &self.other } else { &self.one }
    }
}

impl EtcdClient for Replaced {
    fn range(&self, request: RangeRequest) -> BoxFuture<'_, Result<RangeResponse, EtcdError>> {
        self.current().range(request)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnResponse, EtcdError>> {
        self.current().txn(txn)
    }

    fn watch(&self, request: WatchRequest) -> BoxFuture<'_, Result<EtcdWatch, EtcdError>> {
        self.current().watch(request)
    }

    fn grant_lease(&self, seconds: i64) -> BoxFuture<'_, Result<i64, EtcdError>> {
        self.current().grant_lease(seconds)
    }

    fn compact(&self, revision: Revision) -> BoxFuture<'_, Result<(), EtcdError>> {
        self.current().compact(revision)
    }

    fn features(&self) -> Features {
        self.current().features()
    }
}

#[tokio::test(start_paused = true)]
async fn an_etcd_that_was_restored_from_a_backup_is_noticed() {
    let clock = Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap());
    let (one, other) = (EtcdModel::new(clock.clone()), EtcdModel::new(clock.clone()));
    let client = Arc::new(Replaced { one, other, is_replaced: AtomicBool::new(false) });
    let options = options(Limits::default());
    let store =
        EtcdStore::open(client.clone(), Arc::new(TextCodec), None, clock.clone(), options).await.unwrap();
    let world = World::with_store(Arc::new(store), clock);
    for path in ["a", "b", "c"] {
        world.create(path).await;
    }
    client.is_replaced.store(true, Ordering::Relaxed);
    let why = world.store.latest().await.unwrap_err().to_string();
    assert!(why.contains("restored from a backup"), "{why}");
    // The watch reports nothing of it, so it would never be seen here.
    let write = world.put(pods().key("d"), Expect::Absent, "d", None).await;
    assert!(matches!(&write, Err(Error::Unavailable(why)) if why.contains("Restart")), "{write:?}");
    assert!(world.store.health().await.is_err());
}

#[tokio::test]
async fn many_writers_on_one_etcd_lose_nothing() {
    let _turn = turn().await;
    let place = Place::new().await;
    let worlds = [place.open().await, place.open().await];
    worlds[0].put(pods().key("count"), Expect::Absent, "0", None).await.unwrap();
    let increment = async |world: &World| {
        for _ in 0..25 {
            let mut current = latest(world, "count").await.unwrap();
            loop {
                let next = text(&current).parse::<u32>().unwrap() + 1;
                let expect = Expect::Revision(current.modified);
                match world.put(pods().key("count"), expect, &next.to_string(), None).await {
                    Ok(_) => break,
                    Err(Error::Conflict { current: Some(newer) }) => current = newer,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    };
    futures::join!(
        increment(&worlds[0]),
        increment(&worlds[1]),
        increment(&worlds[0]),
        increment(&worlds[1])
    );
    for world in &worlds {
        assert_eq!(text(&latest(world, "count").await.unwrap()), "100");
    }
}
