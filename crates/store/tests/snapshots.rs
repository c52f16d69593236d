//! Snapshots: complete, checked, and consistent although the store goes on.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use setpoint_store::*;

use crate::engines::{World, clock, pods, text};

/// A directory for data directories and snapshots.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(name)).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn open(&self, name: &str) -> World {
        // Small enough for frequent checkpoints.
        let options =
            DurableOptions { checkpoint_after: 2048, checkpoint_slice: 500, ..DurableOptions::default() };
        let store = DurableStore::open_with(self.path(name), clock(), options).unwrap();
        World::with_store(Arc::new(store), clock())
    }
}

async fn state(world: &World) -> Vec<String> {
    let page = world.list("", ListOptions::default()).await.unwrap();
    let shown = |record: &Arc<Record>| format!("{}={}@{}", record.key.path, text(record), record.modified);
    page.records.iter().map(shown).collect()
}

#[tokio::test]
async fn a_snapshot_of_a_directory_in_use_restores_its_state() {
    let place = Place::new();
    let world = place.open("data");
    for n in 0..100 {
        world.create(&format!("{n:03}")).await;
    }
    world.update("007", "new").await;
    world.delete("008").await;
    let expected = state(&world).await;
    let before = place.names("data");
    let saved = save_snapshot(&place.path("data"), &place.path("a")).unwrap();
    assert_eq!((saved.revision, saved.records), (world.store.revision(), 99));
    assert_eq!(place.names("data"), before, "reading changes nothing");
    assert_eq!(check_snapshot(&place.path("a")).unwrap(), saved);
    // The store goes on.
    world.update("007", "newer").await;
    for (name, bump) in [("kept", 0), ("bumped", 1_000_000)] {
        let restored = restore_snapshot(&place.path("a"), &place.path(name), bump).unwrap();
        assert_eq!(restored, SnapshotInfo { revision: saved.revision + bump, ..saved });
        let again = place.open(name);
        assert_eq!(again.store.revision(), saved.revision + bump);
        assert_eq!(state(&again).await, expected);
        // Clients that saw the newer state have to list again.
        let watch = again.store.watch(pods().all(), saved.revision);
        assert_eq!(watch.is_ok(), bump == 0);
        assert!(again.create("next").await > saved.revision + bump);
    }
}

#[tokio::test]
async fn a_snapshot_is_consistent_while_the_store_is_written_and_checkpointed() {
    let place = Place::new();
    let world = Arc::new(place.open("data"));
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let writing = {
        let (world, stop, acknowledged) = (world.clone(), stop.clone(), acknowledged.clone());
        tokio::spawn(async move {
            world.create("count").await;
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                let revision = world.update("count", &format!("{n:0200}")).await;
                acknowledged.store(revision, Ordering::SeqCst);
            }
        })
    };
    for round in 0..20 {
        let path = place.path(&format!("snapshot-{round}"));
        let least = acknowledged.load(Ordering::SeqCst);
        let data = place.path("data");
        let to = path.clone();
        // Tests may block a thread of their own.
        let saved = std::thread::spawn(move || save_snapshot(&data, &to));
        while !saved.is_finished() {
            tokio::task::yield_now().await;
        }
        let saved = saved.join().unwrap().unwrap();
        assert!(saved.revision >= least, "{} of {least}", saved.revision);
        restore_snapshot(&path, &place.path(&format!("restored-{round}")), 0).unwrap();
        let restored = place.open(&format!("restored-{round}"));
        if let Some(record) = restored.get("count").await {
            // One write per revision, the first of which created it.
            assert_eq!(record.modified, saved.revision);
        }
    }
    stop.store(true, Ordering::Relaxed);
    writing.await.unwrap();
}

#[tokio::test]
async fn a_damaged_snapshot_is_refused_and_restores_nothing() {
    let place = Place::new();
    let world = place.open("data");
    for n in 0..20 {
        world.create(&format!("{n}")).await;
    }
    save_snapshot(&place.path("data"), &place.path("a")).unwrap();
    let whole = fs::read(place.path("a")).unwrap();
    let refused = |bytes: &[u8], what: &str| {
        fs::write(place.path("b"), bytes).unwrap();
        assert!(check_snapshot(&place.path("b")).is_err(), "{what}");
        assert!(restore_snapshot(&place.path("b"), &place.path("restored"), 0).is_err(), "{what}");
        assert!(!place.path("restored").exists() || place.names("restored") == ["LOCK"], "{what}");
    };
    for length in (0..whole.len()).step_by(7) {
        refused(&whole[..length], &format!("cut at {length}"));
    }
    for at in (0..whole.len()).step_by(11) {
        let mut broken = whole.clone();
        broken[at] ^= 0x20;
        refused(&broken, &format!("broken at {at}"));
    }
    refused(&[&whole[..], b"more"].concat(), "longer");
    let log = place.names("data").into_iter().find(|name| name.starts_with("log-")).unwrap();
    let why = check_snapshot(&place.path("data").join(log)).unwrap_err().to_string();
    assert!(why.contains("is a log, expected a snapshot"), "{why}");
}

#[tokio::test]
async fn nothing_is_overwritten() {
    let place = Place::new();
    let world = place.open("data");
    world.create("a").await;
    fs::write(place.path("mine"), "mine").unwrap();
    let why = save_snapshot(&place.path("data"), &place.path("mine")).unwrap_err();
    assert!(matches!(why, SnapshotError::Exists(_)), "{why}");
    assert_eq!(fs::read(place.path("mine")).unwrap(), b"mine");
    save_snapshot(&place.path("data"), &place.path("a")).unwrap();
    let why = restore_snapshot(&place.path("a"), &place.path("data"), 0).unwrap_err();
    assert!(matches!(why, SnapshotError::Open(OpenError::InUse { .. })), "{why}");
    drop(world);
    let before = place.names("data");
    let why = restore_snapshot(&place.path("a"), &place.path("data"), 0).unwrap_err();
    assert!(matches!(why, SnapshotError::NotEmpty(_)), "{why}");
    assert_eq!(place.names("data"), before);
    fs::create_dir(place.path("empty")).unwrap();
    let why = save_snapshot(&place.path("empty"), &place.path("b")).unwrap_err();
    assert!(matches!(why, SnapshotError::NoStore(_)), "{why}");
    assert!(save_snapshot(&place.path("data"), Path::new("/does/not/exist/a")).is_err());
}

#[tokio::test]
async fn a_store_saves_itself() {
    let place = Place::new();
    let store = Arc::new(DurableStore::open(place.path("data"), clock()).unwrap());
    let world = World::with_store(store.clone(), clock());
    world.create("a").await;
    let saved = store.save_snapshot(&place.path("a")).unwrap();
    assert_eq!((saved.revision, saved.records), (world.store.revision(), 1));
    restore_snapshot(&place.path("a"), &place.path("restored"), 0).unwrap();
    assert_eq!(state(&place.open("restored")).await, state(&world).await);
}
