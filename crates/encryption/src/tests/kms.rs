//! Tests encryption with a KMS plugin. Uses real time, because sockets do not wait for a paused clock.

use jiff::SignedDuration;
use tempfile::TempDir;

use super::*;
use crate::test_plugin::{Behaviour, KmsPlugin, Seen};

struct World {
    directory: TempDir,
    plugin: Option<KmsPlugin>,
}

impl World {
    fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let plugin = KmsPlugin::start(&directory.path().join("kms.sock"));
        Self { directory, plugin: Some(plugin) }
    }

    fn plugin(&self) -> &KmsPlugin {
        self.plugin.as_ref().unwrap()
    }

    fn stop(&mut self) -> Arc<parking_lot::Mutex<Seen>> {
        self.plugin.take().unwrap().seen.clone()
    }

    fn configuration(&self) -> String {
        let socket = self.directory.path().join("kms.sock");
        let kms =
            format!("kms: {{apiVersion: v2, name: p, endpoint: 'unix://{}', timeout: 1s}}", socket.display());
        secrets_with(&[&kms])
    }

    async fn load(&self, clock: &Clock) -> Encryption {
        let file = self.directory.path().join("config.yaml");
        std::fs::write(&file, self.configuration()).unwrap();
        Encryption::load(Options { clock: clock.clone(), ..options(&file) }).await.unwrap()
    }
}

#[tokio::test]
async fn a_plugin_is_asked_once_for_many_writes_and_once_per_seed_for_reads() {
    let world = World::start();
    let clock = clock();
    let encryption = world.load(&clock).await;
    assert_eq!(world.plugin().calls(), ["Status", "Encrypt"]);
    let mut stored = Vec::new();
    for number in 0..20 {
        stored.push(secret_a().round_trip(&encryption, &format!("value {number}")).await);
    }
    assert!(stored.iter().all(|stored| starts_with(stored, "k8s:enc:kms:v2:p:")));
    assert_eq!(world.plugin().calls(), [""; 0], "what was written here is read without the plugin");
    // As after a restart.
    let encryption = world.load(&clock).await;
    world.plugin().calls();
    for (number, stored) in stored.iter().enumerate() {
        let opened = secret_a().open(&encryption, stored).await.unwrap();
        assert_eq!((opened.data, opened.stale), (format!("value {number}").into_bytes(), false));
    }
    assert_eq!(world.plugin().calls(), ["Decrypt"]);
    let elsewhere = Place::of("secrets", "/registry/secrets/default/b");
    let error = elsewhere.open(&encryption, &stored[0]).await.unwrap_err().to_string();
    assert_eq!(error, "cipher: message authentication failed");
    let metrics = encryption.metrics();
    for line in [
        "apiserver_storage_envelope_transformation_cache_misses_total 1",
        "apiserver_envelope_encryption_dek_source_cache_size{provider_name=\"p\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in\n{metrics}");
    }
    assert!(metrics.contains("method_name=\"/v2.KeyManagementService/Decrypt\",grpc_status_code=\"OK\""));
}

#[tokio::test]
async fn a_new_key_id_makes_what_was_written_stale() {
    let world = World::start();
    let encryption = world.load(&clock()).await;
    let stored = secret_a().seal(&encryption, "x").unwrap();
    world.plugin().behave(|plugin| plugin.key_id = "2".into());
    // A new configuration probes immediately, a running one within a minute.
    let encryption = world.load(&clock()).await;
    let opened = secret_a().open(&encryption, &stored).await.unwrap();
    assert_eq!((&*opened.data, opened.stale), (&b"x"[..], true));
    secret_a().round_trip(&encryption, "x").await;
}

#[tokio::test]
async fn writes_end_some_minutes_after_the_plugin_was_last_healthy_and_reads_do_not() {
    let world = World::start();
    let clock = clock();
    let encryption = world.load(&clock).await;
    let stored = secret_a().seal(&encryption, "x").unwrap();
    clock.set_by(SignedDuration::from_secs(181));
    let error = secret_a().seal(&encryption, "x").unwrap_err().to_string();
    assert!(error.starts_with("encryptedDEKSource with keyID hash \"sha256:"), "{error}");
    assert!(error.contains("expired at 2025-01-01T00:03:00Z"), "{error}");
    assert_eq!(secret_a().open(&encryption, &stored).await.unwrap().data, b"x");
    // Copying a stored value still works.
    let mut out = Vec::new();
    let place = secret_a();
    place.transformer(&encryption).encrypt(b"x", &place.context(), Purpose::Copy, &mut out).unwrap();
    assert_eq!(secret_a().open(&encryption, &out).await.unwrap().data, b"x");
}

#[tokio::test]
async fn a_late_plugin_is_awaited_and_a_missing_one_is_an_error() {
    let mut world = World::start();
    let stored = secret_a().seal(&world.load(&clock()).await, "x").unwrap();
    let seen = world.stop();
    let socket = world.directory.path().join("kms.sock");
    // The plugin starts while it is being dialed.
    let late = async {
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
        KmsPlugin::start_with(&socket, seen.clone())
    };
    let clock = clock();
    let (encryption, plugin) = tokio::join!(world.load(&clock), late);
    assert_eq!(secret_a().open(&encryption, &stored).await.unwrap().data, b"x");
    assert_eq!(encryption.check().await, Ok(()));
    drop(plugin);
    let encryption = world.load(&clock).await;
    let error = secret_a().open(&encryption, &stored).await.unwrap_err().to_string();
    assert_eq!(error, "got unexpected nil transformer");
    assert!(secret_a().seal(&encryption, "x").is_err(), "nothing is written in plain text instead");
    let health = encryption.check().await.unwrap_err();
    assert!(health.starts_with("kms-provider-0: failed to perform status section"), "{health}");
    assert!(health.contains("code = DeadlineExceeded"), "{health}");
}

#[tokio::test]
async fn a_connection_that_broke_is_made_again() {
    let mut world = World::start();
    let clock = clock();
    let stored = secret_a().seal(&world.load(&clock).await, "x").unwrap();
    let encryption = world.load(&clock).await;
    let seen = world.stop();
    let socket = world.directory.path().join("kms.sock");
    world.plugin = Some(KmsPlugin::start_with(&socket, seen));
    assert_eq!(secret_a().open(&encryption, &stored).await.unwrap().data, b"x");
}

#[tokio::test]
async fn plugin_errors_have_the_messages_of_v1_34() {
    let world = World::start();
    let check = async |change: fn(&mut Behaviour), expected: &str| {
        world.plugin().behave(|plugin| *plugin = Default::default());
        world.plugin().behave(change);
        let encryption = world.load(&clock()).await;
        let error = encryption.check().await.unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check(|plugin| plugin.healthz = "sick".into(), "got unexpected healthz status: sick").await;
    check(|plugin| plugin.version = "v1".into(), "expected KMSv2 API version v2, got v1").await;
    check(|plugin| plugin.key_id = String::new(), "got invalid KMSv2 KeyID hash \"\": keyID is empty").await;
    check(|plugin| plugin.key_id = "x".repeat(1025), "keyID is 1025 bytes").await;
    check(|plugin| plugin.annotation = "x".into(), "should be a domain with at least two segments").await;
    let failure = "rpc error: code = Unavailable desc = no access";
    check(|plugin| plugin.failure = Some((14, "no%20access".into())), failure).await;
    check(|plugin| plugin.hangs = true, "rpc error: code = DeadlineExceeded").await;
}
