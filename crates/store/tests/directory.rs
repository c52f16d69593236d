//! Tests the durable engine on a real directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use setpoint_store::*;

use crate::engines::{self, clock, pods};

async fn put(store: &DurableStore, path: &str, expect: Expect, ttl: Option<Duration>) -> Arc<Record> {
    let payload = Payload {
        bytes: format!("{{\"path\":\"{path}\"}}").into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: Inset::default(),
        facts: None,
    };
    store.commit(Write { key: pods().key(path), expect, change: Change::Put { payload, ttl } }).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_second_start_finds_everything_again() {
    let directory = tempfile::tempdir().unwrap();
    let clock = clock();
    let store = DurableStore::open(directory.path().join("made/if/absent"), clock.clone()).unwrap();
    let first = put(&store, "a", Expect::Absent, None).await;
    put(&store, "b", Expect::Absent, Some(Duration::from_secs(60))).await;
    let updated = put(&store, "a", Expect::Revision(first.modified), None).await;
    put(&store, "c", Expect::Absent, None).await;
    let removal = Write { key: pods().key("c"), expect: Expect::Revision(5), change: Change::Delete };
    store.commit(removal).await.unwrap();
    store.close().await;
    drop(store);

    let store = DurableStore::open(directory.path().join("made/if/absent"), clock.clone()).unwrap();
    assert_eq!((store.revision(), store.compacted()), (6, 6));
    let page = store.list(&pods().all(), ListOptions::default()).await.unwrap();
    let [a, b] = &page.records[..] else { panic!("{page:?}") };
    assert_eq!(a.value, updated.value);
    assert_eq!((a.created, a.modified, b.modified), (2, 4, 3));
    assert!(matches!(store.watch(pods().all(), 5), Err(Error::Compacted { requested: 5, oldest: 6 })));
    let mut watch = store.watch(pods().all(), 6).unwrap();
    tokio::time::advance(Duration::from_secs(60)).await;
    assert_eq!(store.expire(clock.now()).await.unwrap(), 1);
    assert_eq!(engines::drain(&mut watch).unwrap(), ["-b@7"]);
}

#[tokio::test(start_paused = true)]
async fn a_directory_in_use_is_refused_and_free_after_closing() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    let second = DurableStore::open(directory.path(), clock()).err().unwrap();
    let pid = std::process::id();
    let expected = format!("the data directory {} is in use by process {pid}", directory.path().display());
    assert_eq!(second.to_string(), expected);
    put(&store, "a", Expect::Absent, None).await;
    store.close().await;
    let third = DurableStore::open(directory.path(), clock()).unwrap();
    assert_eq!(third.revision(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_directory_that_cannot_be_created_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    let error = DurableStore::open(&file, clock()).err().unwrap();
    assert_eq!(error.to_string(), format!("could not make the data directory {}", file.display()));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_replaces_the_logs_before_it() {
    let directory = tempfile::tempdir().unwrap();
    let options =
        DurableOptions { checkpoint_after: 10_000, checkpoint_slice: 1_000, ..DurableOptions::default() };
    let store = DurableStore::open_with(directory.path(), clock(), options).unwrap();
    let mut current = put(&store, "a", Expect::Absent, None).await;
    for _ in 0..400 {
        current = put(&store, "a", Expect::Revision(current.modified), None).await;
    }
    drop(store);
    let sizes = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len());
    let on_disk: u64 = sizes.sum();
    assert!(on_disk < 25_000, "{on_disk} bytes for one record");
    let store = DurableStore::open_with(directory.path(), clock(), options).unwrap();
    assert_eq!(store.get(&pods().key("a"), None).await.unwrap().unwrap().value, current.value);
}

/// A value whose inset has one text with own bytes, and one without.
fn with_inset(path: &str, own: &str) -> Payload {
    let part = |text: &str, own_at: usize, own: &str| Part {
        text: Text::shared(text.as_bytes(), own_at).unwrap(),
        own: InlineBytes::new(own).unwrap(),
    };
    let inset =
        Inset::new([part(r#"{"manager":"m","time":""}"#, 23, own), part(r#"{"manager":"n"}"#, 15, "")]);
    let bytes = format!("{{\"path\":\"{path}\"}}").into();
    Payload { bytes, stamp_at: Some(1), inset_at: None, inset, facts: None }
}

async fn put_with_inset(store: &DurableStore, path: &str, own: &str) -> Arc<Record> {
    let change = Change::Put { payload: with_inset(path, own), ttl: None };
    store.commit(Write { key: pods().key(path), expect: Expect::Absent, change }).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn insets_are_found_again_and_shared() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    for n in 0..40 {
        put_with_inset(&store, &format!("p{n:02}"), &format!("at {n}")).await;
    }
    put(&store, "q", Expect::Absent, None).await;
    store.close().await;
    drop(store);

    let store = DurableStore::open(directory.path(), clock()).unwrap();
    let page = store.list(&pods().all(), ListOptions::default()).await.unwrap();
    assert_eq!(page.records.len(), 41);
    let (first, last) = (&page.records[0], &page.records[39]);
    assert_eq!(
        first.whole(),
        r#"{"resourceVersion":"2","managedFields":[{"manager":"m","time":"at 0"},{"manager":"n"}],"path":"p00"}"#
    );
    assert!(first.holds(&with_inset("p00", "at 0")) && !first.holds(&with_inset("p00", "at 1")));
    assert!(first.inset.has_texts_of(&last.inset) && first.inset != last.inset);
    assert_eq!(page.records[40].whole(), page.records[40].value);
}

#[tokio::test(start_paused = true)]
async fn an_inset_stays_where_it_was_placed() {
    let directory = tempfile::tempdir().unwrap();
    let text = r#"{"a":1,"b":2}"#;
    let places = [(6, "before the stamp"), (12, "after it")];
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    for (at, name) in places {
        let payload =
            Payload { bytes: text.into(), stamp_at: Some(7), inset_at: Some(at), ..with_inset(name, "now") };
        let change = Change::Put { payload, ttl: None };
        store.commit(Write { key: pods().key(name), expect: Expect::Absent, change }).await.unwrap();
    }
    store.close().await;
    drop(store);
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    let managed = r#""managedFields":[{"manager":"m","time":"now"},{"manager":"n"}]"#;
    for ((_, name), expected) in places.into_iter().zip([
        format!(r#"{{"a":1,{managed},"resourceVersion":"2","b":2}}"#),
        format!(r#"{{"a":1,"resourceVersion":"3","b":2,{managed}}}"#),
    ]) {
        let record = store.get(&pods().key(name), None).await.unwrap().unwrap();
        assert_eq!(record.whole(), expected, "{name}");
        assert_eq!(record.whole_length(), expected.len());
        let mut rest = Vec::new();
        record.write_whole_from(1, &mut rest);
        assert_eq!(rest, expected.as_bytes()[1..]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_log_of_an_older_version_is_read_and_not_added_to() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    put(&store, "a", Expect::Absent, None).await;
    store.close().await;
    drop(store);
    let first = directory.path().join("log-00000000000000000001");
    let mut bytes = fs::read(&first).unwrap();
    bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
    let crc = crc32fast::hash(&bytes[..40]);
    bytes[40..44].copy_from_slice(&crc.to_le_bytes());
    fs::write(&first, &bytes).unwrap();

    let store = DurableStore::open(directory.path(), clock()).unwrap();
    put_with_inset(&store, "b", "now").await;
    store.close().await;
    drop(store);
    assert_eq!(fs::read(&first).unwrap(), bytes, "the older file is unchanged");
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    assert_eq!((store.revision(), store.count(&pods().all()).await.unwrap()), (3, 2));
}

/// Returns the permissions of a file or directory, and of everything in it.
fn modes(path: &Path) -> Vec<(String, u32)> {
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let entries = fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
    let mut found: Vec<_> = entries.flat_map(|entry| modes(&entry)).collect();
    found.push((name, mode));
    found
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Creates a directory with a log, a checkpoint and a lock.
async fn filled(path: &Path) {
    let options =
        DurableOptions { checkpoint_after: 1_000, checkpoint_slice: 500, ..DurableOptions::default() };
    let store = DurableStore::open_with(path, clock(), options).unwrap();
    let mut current = put(&store, "a", Expect::Absent, None).await;
    for _ in 0..40 {
        current = put(&store, "a", Expect::Revision(current.modified), None).await;
    }
    store.close().await;
    let names: Vec<_> = modes(path).into_iter().map(|(name, _)| name).collect();
    for prefix in ["log-", "checkpoint-", "LOCK"] {
        assert!(names.iter().any(|name| name.starts_with(prefix)), "{prefix} in {names:?}");
    }
}

fn assert_private(path: &Path) {
    for (name, mode) in modes(path) {
        let expected = if name == "data" { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{name}: {mode:o}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_the_owner_can_read_the_data() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    filled(&data).await;
    assert_private(&data);
}

#[tokio::test(start_paused = true)]
async fn a_data_directory_that_others_could_read_is_tightened() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    filled(&data).await;
    let foreign = data.join("notes.txt");
    fs::write(&foreign, "").unwrap();
    for path in fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        set_mode(&path, 0o644);
    }
    set_mode(&data, 0o755);
    drop(DurableStore::open(&data, clock()).unwrap());
    assert_eq!(fs::metadata(&foreign).unwrap().permissions().mode() & 0o777, 0o644, "not the store's");
    fs::remove_file(&foreign).unwrap();
    assert_private(&data);
}
