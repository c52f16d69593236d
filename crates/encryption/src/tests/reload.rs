//! Tests a configuration file that changes.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::*;

#[tokio::test]
async fn a_changed_file_takes_effect_and_a_broken_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, secrets_with(&[&keys("aescbc", &['a'])])).unwrap();
    let encryption = Encryption::load(options(&file)).await.unwrap();
    assert!(encryption.has_health_check());
    assert_eq!(encryption.check().await, Ok(()));
    let prefix = |encryption: &Encryption| {
        let stored = secret_a().seal(encryption, "x").unwrap();
        String::from_utf8_lossy(&stored[..20]).into_owned()
    };
    assert_eq!(prefix(&encryption), "k8s:enc:aescbc:v1:a:");
    let before = encryption.metrics();

    encryption.reload().await.unwrap();
    assert_eq!(encryption.metrics(), before, "an unchanged file is not a reload");

    std::fs::write(&file, "rubbish").unwrap();
    assert!(encryption.reload().await.is_err());
    assert_eq!(prefix(&encryption), "k8s:enc:aescbc:v1:a:");

    std::fs::write(&file, secrets_with(&[&keys("aescbc", &['b', 'a'])])).unwrap();
    encryption.reload().await.unwrap();
    assert_eq!(prefix(&encryption), "k8s:enc:aescbc:v1:b:");
    let metrics = encryption.metrics();
    let line = |start: &str| metrics.lines().filter(|line| line.starts_with(start)).count();
    assert_eq!(line("apiserver_encryption_config_controller_automatic_reloads_total{status=\"success\""), 1);
    assert_eq!(line("apiserver_encryption_config_controller_last_config_info{"), 1);
}

#[tokio::test]
async fn the_file_is_followed_until_stopped() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.yaml");
    std::fs::write(&file, secrets_with(&[&keys("aescbc", &['a'])])).unwrap();
    let encryption = Encryption::load(options(&file)).await.unwrap();
    std::fs::write(&file, secrets_with(&[&keys("aescbc", &['b'])])).unwrap();
    let stop = CancellationToken::new();
    tokio::time::pause();
    let watch = async {
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(starts_with(&secret_a().seal(&encryption, "x").unwrap(), "k8s:enc:aescbc:v1:a:"));
        // Reading the file does not follow the paused clock.
        for _ in 0..1000 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            if starts_with(&secret_a().seal(&encryption, "x").unwrap(), "k8s:enc:aescbc:v1:b:") {
                return stop.cancel();
            }
            std::thread::yield_now();
        }
        panic!("the change was not noticed");
    };
    tokio::join!(encryption.follow_file(stop.clone()), watch);
}
