//! Tests encryption at rest: what the files contain, and what happens when a key is missing.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use setpoint_clock::{Clock, Rng};
use setpoint_encryption::{Encryption, GroupResource, Options, Transformer, Transformers};
use setpoint_store::*;

use crate::engines::{self, clock};

/// The plain text to search for, as in a Secret.
const PASSWORD: &str = "correct horse battery staple";
const PASSWORD_BASE64: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";
/// Its beginning, also in base64 with each of the three possible alignments.
const TRACES: [&str; 4] =
    [PASSWORD, "Y29ycmVjdCBob3JzZSBiYXR0", "NvcnJlY3QgaG9yc2UgYmF0dGVy", "jb3JyZWN0IGhvcnNlIGJhdHRl"];

/// Small enough for frequent checkpoints.
const OPTIONS: DurableOptions = DurableOptions {
    limits: Limits { events: 1_000, bytes: 1 << 20, total_bytes: 1 << 20, age: Duration::from_secs(300) },
    checkpoint_after: 4_000,
    checkpoint_slice: 500,
};

/// Transformers that can be replaced, as a reload does.
struct Exchangeable(Mutex<Arc<dyn Transformers>>);

impl Transformers for Exchangeable {
    fn transformer(&self, resource: &GroupResource) -> Arc<dyn Transformer> {
        let current = self.0.lock().clone();
        current.transformer(resource)
    }
}

/// Configures these providers for Secrets, and none for other resources.
async fn encryption(providers: &[&str]) -> Arc<dyn Transformers> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    let providers: String = providers.iter().map(|provider| format!("  - {provider}\n")).collect();
    let head = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n";
    fs::write(&file, format!("{head}resources:\n- resources: [secrets]\n  providers:\n{providers}")).unwrap();
    let (server, clock, rng) = (String::new(), Clock::system(), Rng::seeded(1));
    Arc::new(Encryption::load(Options { file, reload: false, server, clock, rng }).await.unwrap())
}

/// A provider with this key.
fn provider(kind: &str, key: char) -> String {
    let secret = match key {
        'a' => "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
        _ => "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=",
    };
    format!("{kind}: {{keys: [{{name: {key}, secret: {secret}}}]}}")
}

fn secrets() -> Resource {
    Resource::new("secrets")
}

async fn open(directory: &Path, transformers: &Arc<dyn Transformers>) -> DurableStore {
    DurableStore::open_encrypted(directory, clock(), OPTIONS, transformers.clone()).await.unwrap()
}

async fn put(store: &DurableStore, key: Key, expect: Expect, version: usize) -> Arc<Record> {
    let text = format!(
        "{{\"data\":{{\"password\":\"{PASSWORD_BASE64}\",\"plain\":\"{PASSWORD}\"}},\"v\":{version}}}"
    );
    let payload = Payload {
        bytes: text.into(),
        stamp_at: Some(1),
        inset_at: None,
        inset: Default::default(),
        facts: None,
    };
    store.commit(Write { key, expect, change: Change::Put { payload, ttl: None } }).await.unwrap()
}

/// Writes, updates and removes enough to cause checkpoints.
async fn work(store: &DurableStore) {
    for number in 0..30 {
        let key = secrets().key(format!("default/{number}"));
        let created = put(store, key.clone(), Expect::Absent, 1).await;
        let updated = put(store, key.clone(), Expect::Revision(created.modified), 2).await;
        if number % 3 == 0 {
            let expect = Expect::Revision(updated.modified);
            store.commit(Write { key, expect, change: Change::Delete }).await.unwrap();
        }
    }
}

/// Returns the files that contain a trace of the password.
fn files_with_traces(directory: &Path) -> Vec<String> {
    let files = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let holds = |path: &Path| {
        // A checkpoint may replace a log in the meantime.
        let content = fs::read(path).unwrap_or_default();
        TRACES.iter().any(|trace| content.windows(trace.len()).any(|window| window == trace.as_bytes()))
    };
    files.filter(|path| holds(path)).map(|path| path.display().to_string()).collect()
}

fn has_checkpoint(directory: &Path) -> bool {
    let mut names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    names.any(|name| name.to_string_lossy().starts_with("checkpoint-"))
}

fn value(record: &Record) -> &str {
    engines::text(record)
}

#[tokio::test]
async fn no_file_contains_plaintext_secrets() {
    for kind in ["aescbc", "aesgcm", "secretbox"] {
        let directory = tempfile::tempdir().unwrap();
        let transformers = encryption(&[&provider(kind, 'a'), "identity: {}"]).await;
        let store = open(directory.path(), &transformers).await;
        work(&store).await;
        let before = store.list(&secrets().all(), ListOptions::default()).await.unwrap();
        assert_eq!(files_with_traces(directory.path()), [""; 0], "{kind}");
        drop(store);
        assert!(has_checkpoint(directory.path()), "{kind}");
        assert_eq!(files_with_traces(directory.path()), [""; 0], "{kind}");
        let store = open(directory.path(), &transformers).await;
        let after = store.list(&secrets().all(), ListOptions::default()).await.unwrap();
        let values = |page: &Page| page.records.iter().map(|record| record.value.clone()).collect::<Vec<_>>();
        assert_eq!(values(&before), values(&after), "{kind}");
        work_again(&store, &after).await;
        drop(store);
        assert_eq!(files_with_traces(directory.path()), [""; 0], "{kind}");
    }
}

async fn work_again(store: &DurableStore, page: &Page) {
    for record in &page.records {
        put(store, record.key.clone(), Expect::Revision(record.modified), 3).await;
    }
}

#[tokio::test]
async fn without_encryption_the_search_finds_the_plaintext() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    work(&store).await;
    drop(store);
    assert!(!files_with_traces(directory.path()).is_empty());
}

#[tokio::test]
async fn resources_without_providers_are_stored_as_they_are() {
    let directory = tempfile::tempdir().unwrap();
    let transformers = encryption(&[&provider("aescbc", 'a')]).await;
    let store = open(directory.path(), &transformers).await;
    let key = Resource::new("configmaps").key("default/a");
    let written = put(&store, key.clone(), Expect::Absent, 1).await;
    assert!(!store.is_stale(&written));
    drop(store);
    assert!(!files_with_traces(directory.path()).is_empty());
    let store = open(directory.path(), &transformers).await;
    assert_eq!(value(&store.get(&key, None).await.unwrap().unwrap()), value(&written));
}

#[tokio::test]
async fn a_value_that_cannot_be_decrypted_is_an_error_and_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let (first, second) = (secrets().key("default/first"), secrets().key("default/second"));
    let old = encryption(&[&provider("aesgcm", 'a')]).await;
    let store = open(directory.path(), &old).await;
    let written = put(&store, first.clone(), Expect::Absent, 1).await;
    drop(store);

    // The key has been replaced by another one.
    let new = encryption(&[&provider("aesgcm", 'b')]).await;
    for _ in 0..3 {
        let store = open(directory.path(), &new).await;
        let why = "no matching key was found for the provided AES transformer";
        assert_eq!(store.get(&first, None).await.unwrap_err().to_string(), why);
        let error = store.list(&secrets().all(), ListOptions::default()).await.unwrap_err().to_string();
        assert_eq!(error, format!("unable to transform key \"/registry/secrets/default/first\": {why}"));
        // The record exists, and cannot be created again, changed or removed.
        let payload = || Payload::plain("x");
        let put_over = |expect| Write {
            key: first.clone(),
            expect,
            change: Change::Put { payload: payload(), ttl: None },
        };
        assert!(matches!(store.commit(put_over(Expect::Absent)).await, Err(Error::Conflict { .. })));
        let expect = Expect::Revision(written.modified);
        assert!(matches!(store.commit(put_over(expect)).await, Err(Error::Transform(_))));
        let removal = Write { key: first.clone(), expect, change: Change::Delete };
        assert!(matches!(store.commit(removal).await, Err(Error::Transform(_))));
        // Everything else is served, and checkpoints are written.
        let mut current = store.get(&second, None).await.unwrap();
        for version in 0..30 {
            let expect = current.map_or(Expect::Absent, |record| Expect::Revision(record.modified));
            current = Some(put(&store, second.clone(), expect, version).await);
        }
        assert_eq!(store.count(&secrets().all()).await.unwrap(), 2);
    }
    assert!(has_checkpoint(directory.path()));

    let both = encryption(&[&provider("aesgcm", 'b'), &provider("aesgcm", 'a')]).await;
    let store = open(directory.path(), &both).await;
    let found = store.get(&first, None).await.unwrap().unwrap();
    assert_eq!((value(&found), found.modified), (value(&written), written.modified));
    assert_eq!(store.list(&secrets().all(), ListOptions::default()).await.unwrap().records.len(), 2);
}

#[tokio::test]
async fn encrypted_values_are_not_taken_for_plain_ones_without_a_configuration() {
    let directory = tempfile::tempdir().unwrap();
    let key = secrets().key("default/a");
    let store = open(directory.path(), &encryption(&[&provider("aescbc", 'a')]).await).await;
    put(&store, key.clone(), Expect::Absent, 1).await;
    drop(store);
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    let error = store.get(&key, None).await.unwrap_err().to_string();
    assert_eq!(error, "identity transformer tried to read encrypted data");
    let other = Resource::new("configmaps").key("default/a");
    put(&store, other, Expect::Absent, 1).await;
}

#[tokio::test]
async fn values_are_decrypted_without_a_restart_once_the_key_is_back() {
    let directory = tempfile::tempdir().unwrap();
    let keys = ["default/a", "default/b"].map(|path| secrets().key(path));
    let old = encryption(&[&provider("secretbox", 'a')]).await;
    let store = open(directory.path(), &old).await;
    for key in &keys {
        put(&store, key.clone(), Expect::Absent, 1).await;
    }
    drop(store);
    let new = encryption(&[&provider("secretbox", 'b')]).await;
    let exchangeable = Arc::new(Exchangeable(Mutex::new(new)));
    let transformers: Arc<dyn Transformers> = exchangeable.clone();
    let store = open(directory.path(), &transformers).await;
    assert!(store.get(&keys[0], None).await.is_err());
    let both = encryption(&[&provider("secretbox", 'b'), &provider("secretbox", 'a')]).await;
    *exchangeable.0.lock() = both;
    let found = store.get(&keys[0], None).await.unwrap().unwrap();
    assert!(store.is_stale(&found), "it is still encrypted with the old key");
    let page = store.list(&secrets().all(), ListOptions::default()).await.unwrap();
    assert_eq!(page.records.len(), 2);
    let updated = put(&store, keys[0].clone(), Expect::Revision(found.modified), 2).await;
    assert!(!store.is_stale(&updated));
    drop(store);
    let store = open(directory.path(), &transformers).await;
    assert!(!store.is_stale(&store.get(&keys[0], None).await.unwrap().unwrap()));
}

#[tokio::test]
async fn values_from_before_encryption_are_read_and_stale() {
    let directory = tempfile::tempdir().unwrap();
    let key = secrets().key("default/a");
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    let plain = put(&store, key.clone(), Expect::Absent, 1).await;
    assert!(!store.is_stale(&plain));
    drop(store);
    let transformers = encryption(&[&provider("aescbc", 'a'), "identity: {}"]).await;
    let store = open(directory.path(), &transformers).await;
    let found = store.get(&key, None).await.unwrap().unwrap();
    assert_eq!(found.value, plain.value);
    assert!(store.is_stale(&found));
    // Without the identity provider, plain text is rejected.
    drop(store);
    let strict = encryption(&[&provider("aescbc", 'a')]).await;
    let store = open(directory.path(), &strict).await;
    assert_eq!(store.get(&key, None).await.unwrap_err().to_string(), "no matching prefix found");
}

#[tokio::test]
async fn plain_text_from_before_leaves_the_disk_with_the_first_write() {
    let directory = tempfile::tempdir().unwrap();
    let store = DurableStore::open(directory.path(), clock()).unwrap();
    work(&store).await;
    drop(store);
    assert!(!files_with_traces(directory.path()).is_empty());
    let transformers = encryption(&[&provider("aescbc", 'a'), "identity: {}"]).await;
    // The logs are far below the size at which a checkpoint is due.
    let options = DurableOptions { checkpoint_slice: 500, ..DurableOptions::default() };
    let store = DurableStore::open_encrypted(directory.path(), clock(), options, transformers.clone()).await;
    let store = store.unwrap();
    for number in 0..40 {
        put(&store, secrets().key(format!("new/{number}")), Expect::Absent, 1).await;
    }
    drop(store);
    assert_eq!(files_with_traces(directory.path()), [""; 0]);
    let store = open(directory.path(), &transformers).await;
    assert_eq!(store.count(&secrets().all()).await.unwrap(), 60);
}

#[tokio::test]
async fn a_value_that_cannot_be_decrypted_still_expires() {
    let directory = tempfile::tempdir().unwrap();
    let key = secrets().key("default/a");
    let store = open(directory.path(), &encryption(&[&provider("aescbc", 'a')]).await).await;
    let change = Change::Put { payload: Payload::plain("{}"), ttl: Some(Duration::from_secs(1)) };
    let written = store.commit(Write { key: key.clone(), expect: Expect::Absent, change }).await.unwrap();
    let expires = written.expires.unwrap();
    drop(store);
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    let mut watch = store.watch(secrets().all(), store.revision()).unwrap();
    assert_eq!(store.expire(expires).await.unwrap(), 1);
    let events = watch.next().await.unwrap();
    assert!(events[0].record.unreadable().is_some());
    assert!(store.get(&key, None).await.unwrap().is_none());
}

#[tokio::test]
async fn a_log_of_the_format_before_encryption_is_read_and_another_one_begun() {
    let directory = tempfile::tempdir().unwrap();
    let key = secrets().key("default/a");
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    let written = put(&store, key.clone(), Expect::Absent, 1).await;
    drop(store);
    let log = directory.path().join("log-00000000000000000001");
    let mut content = fs::read(&log).unwrap();
    content[8] = 1;
    let checksum = crc32fast::hash(&content[..40]).to_le_bytes();
    content[40..44].copy_from_slice(&checksum);
    fs::write(&log, &content).unwrap();
    for _ in 0..2 {
        let store =
            open(directory.path(), &encryption(&[&provider("aescbc", 'a'), "identity: {}"]).await).await;
        assert_eq!(store.get(&key, None).await.unwrap().unwrap().value, written.value);
        let other = secrets().key(format!("default/{}", store.revision()));
        put(&store, other, Expect::Absent, 1).await;
        drop(store);
        assert_eq!(fs::read(&log).unwrap(), content, "an older version could still read it");
    }
}

/// Encryption is removed in the same way as keys are rotated: identity comes first, and the keys after it can still
/// read.
#[tokio::test]
async fn encryption_can_be_disabled() {
    let directory = tempfile::tempdir().unwrap();
    let (a, b) = (secrets().key("default/a"), secrets().key("default/b"));
    let text = Text::shared(b"{\"manager\":\"m\",\"time\":\"\"}", 23).unwrap();
    let inset = Inset::new([Part { text, own: InlineBytes::new("2025-01-02T03:04:05Z").unwrap() }]);
    let write = |key: &Key, expect: Expect| {
        let bytes = format!("{{\"plain\":\"{PASSWORD}\"}}").into();
        let payload = Payload { bytes, stamp_at: Some(1), inset_at: None, inset: inset.clone(), facts: None };
        Write { key: key.clone(), expect, change: Change::Put { payload, ttl: None } }
    };
    let store = open(directory.path(), &encryption(&[&provider("aescbc", 'a')]).await).await;
    let encrypted = store.commit(write(&a, Expect::Absent)).await.unwrap();
    drop(store);
    let transformers = encryption(&["identity: {}", &provider("aescbc", 'a')]).await;
    let store = open(directory.path(), &transformers).await;
    let found = store.get(&a, None).await.unwrap().unwrap();
    assert!(store.is_stale(&found), "it is still encrypted");
    let plain = store.commit(write(&b, Expect::Absent)).await.unwrap();
    drop(store);
    for _ in 0..2 {
        let store = open(directory.path(), &transformers).await;
        for (key, written) in [(&a, &encrypted), (&b, &plain)] {
            let found = store.get(key, None).await.unwrap().unwrap();
            assert_eq!(found.whole(), written.whole());
        }
        // Enough for a checkpoint, which copies records that were not rewritten.
        work(&store).await;
        for record in store.list(&secrets().all(), ListOptions::default()).await.unwrap().records {
            if record.key != a && record.key != b {
                let expect = Expect::Revision(record.modified);
                let change = Change::Delete;
                store.commit(Write { key: record.key.clone(), expect, change }).await.unwrap();
            }
        }
        drop(store);
        assert!(has_checkpoint(directory.path()));
    }
    // Finally, there is no configuration any more.
    let store = DurableStore::open_with(directory.path(), clock(), OPTIONS).unwrap();
    assert_eq!(store.get(&b, None).await.unwrap().unwrap().whole(), plain.whole());
    assert_eq!(store.get(&a, None).await.unwrap().unwrap().whole(), encrypted.whole());
}
