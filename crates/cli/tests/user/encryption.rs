//! Encryption at rest and a full disk, with the real binary and a real data directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use setpoint_encryption::test_plugin::KmsPlugin;

use crate::binary::{Up, eventually, setpoint_up};

const PASSWORD: &str = "correct horse battery staple";
const PASSWORD_BASE64: &str = "Y29ycmVjdCBob3JzZSBiYXR0ZXJ5IHN0YXBsZQ==";

struct World {
    directory: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    fn data(&self) -> String {
        self.directory.path().join("data").to_str().expect("a readable path").to_owned()
    }

    /// Starts with these keys for Secrets. The first one writes.
    fn start(&self, keys: &[char]) -> Up {
        let key = |name: &char| {
            let secret = [
                "YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFhYWE=",
                "YmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmJiYmI=",
            ];
            format!("{{name: {name}, secret: {}}}", secret[usize::from(*name == 'b')])
        };
        let keys: Vec<_> = keys.iter().map(key).collect();
        self.configure(&format!("aescbc: {{keys: [{}]}}", keys.join(", ")));
        Up::start_with(&self.arguments().each_ref().map(String::as_str))
    }

    /// Configures this provider for Secrets.
    fn configure(&self, provider: &str) {
        let text = format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
             providers:\n  - {provider}\n  - identity: {{}}\n"
        );
        fs::write(self.file(), text).expect("it can be written");
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("encryption.yaml")
    }

    fn arguments(&self) -> [String; 7] {
        let file = self.file().to_str().expect("a readable path").to_owned();
        let reload = "--encryption-provider-config-automatic-reload=true";
        let (flag, data) = ("--encryption-provider-config", self.data());
        ["--data-dir", &data, "--nodes", "0", flag, &file, reload].map(str::to_owned)
    }

    /// Returns whether a file in the data directory contains the password, as plain text or base64.
    fn is_password_on_disk(&self) -> bool {
        let files =
            fs::read_dir(self.data()).expect("it exists").map(|entry| entry.expect("readable").path());
        files
            .filter(|path| path.is_file())
            .any(|path| holds(&path, PASSWORD) || holds(&path, PASSWORD_BASE64))
    }

    fn is_on_disk(&self, text: &str) -> bool {
        let files =
            fs::read_dir(self.data()).expect("it exists").map(|entry| entry.expect("readable").path());
        files.filter(|path| path.is_file()).any(|path| holds(&path, text))
    }
}

fn holds(path: &Path, text: &str) -> bool {
    let content = fs::read(path).expect("readable");
    content.windows(text.len()).any(|window| window == text.as_bytes())
}

fn version(up: &Up) -> String {
    up.kubectl(&["get", "secret", "s", "-o", "jsonpath={.metadata.resourceVersion}"])
}

/// Replaces the Secret with itself. Returns its new resource version.
fn replace(up: &Up) -> String {
    let secret = up.kubectl(&["get", "secret", "s", "-o", "json"]);
    up.kubectl_with(&["replace", "-f", "-"], &secret);
    version(up)
}

#[test]
fn secrets_are_encrypted_keys_rotate_and_a_missing_key_loses_nothing() {
    let world = World::new();
    let up = world.start(&['a']);
    up.kubectl(&["create", "secret", "generic", "s", &format!("--from-literal=password={PASSWORD}")]);
    up.kubectl(&["create", "configmap", "c", "--from-literal=a=b"]);
    assert!(!world.is_password_on_disk());
    assert!(world.is_on_disk("k8s:enc:aescbc:v1:a:"));
    assert_eq!(up.kubectl(&["get", "--raw", "/healthz/kms-providers"]), "ok");
    assert!(up.kubectl(&["get", "--raw", "/readyz?verbose"]).contains("[+]kms-providers ok"));
    assert!(!up.kubectl(&["get", "--raw", "/livez?verbose"]).contains("kms-providers"));
    let before = replace(&up);
    assert_eq!(replace(&up), before, "an update that changes nothing is not a write");
    let metrics = up.kubectl(&["get", "--raw", "/metrics"]);
    assert!(metrics.contains("apiserver_storage_transformation_operations_total{resource=\"secrets\""));
    assert!(metrics.contains("apiserver_encryption_config_controller_last_config_info{"));
    assert!(up.stop());

    // A new key writes. An update without changes rewrites once what the old key wrote.
    let up = world.start(&['b', 'a']);
    assert_eq!(version(&up), before);
    let rewritten = replace(&up);
    assert_ne!(rewritten, before);
    assert_eq!(replace(&up), rewritten);
    assert!(up.stop());

    // The key that wrote the Secret is missing. Everything else is served.
    let up = world.start(&['a']);
    let answer = up.try_kubectl(&["get", "secret", "s"], "");
    let why = "no matching key was found for the provided AES transformer";
    assert!(
        answer.err.contains(&format!("(InternalError): Internal error occurred: {why}")),
        "{}",
        answer.err
    );
    let answer = up.try_kubectl(&["get", "secrets"], "");
    let expected = format!("unable to transform key \"/registry/secrets/default/s\": {why}");
    assert!(answer.err.contains(&expected), "{}", answer.err);
    assert!(!up.try_kubectl(&["delete", "secret", "s"], "").ok);
    up.kubectl(&["create", "configmap", "d", "--from-literal=a=b"]);
    up.kubectl(&["get", "configmap", "c"]);
    assert!(up.stop());

    let up = world.start(&['b']);
    assert_eq!(password(&up), PASSWORD_BASE64);
    assert!(!world.is_password_on_disk());
    assert!(up.stop());
}

/// Reads the Secret's password.
fn password(up: &Up) -> String {
    up.kubectl(&["get", "secret", "s", "-o", "jsonpath={.data.password}"])
}

#[test]
fn a_kms_plugin_keeps_the_keys_of_secrets() {
    let world = World::new();
    let socket = world.directory.path().join("kms.sock");
    world.configure(&format!(
        "kms: {{apiVersion: v2, name: plug, endpoint: 'unix://{}', timeout: 2s}}",
        socket.display()
    ));
    let arguments = world.arguments();
    let arguments = arguments.each_ref().map(String::as_str);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime for the plugin");
    let _inside = runtime.enter();
    let plugin = KmsPlugin::start(&socket);
    plugin.behave(|behaviour| behaviour.key_id = "key-one".into());

    let up = Up::start_with(&arguments);
    up.kubectl(&["create", "secret", "generic", "s", &format!("--from-literal=password={PASSWORD}")]);
    up.kubectl(&["create", "configmap", "c", "--from-literal=a=b"]);
    assert!(!world.is_password_on_disk());
    assert!(world.is_on_disk("k8s:enc:kms:v2:plug:") && world.is_on_disk("key-one"));
    let before = replace(&up);
    assert_eq!(replace(&up), before, "an update that changes nothing is not a write");
    assert!(up.stop());

    // The plugin has another key. Rewriting uses it, even if the object does not change.
    let up = Up::start_with(&arguments);
    assert_eq!(password(&up), PASSWORD_BASE64);
    assert!(up.stop());
    plugin.behave(|behaviour| behaviour.key_id = "key-two".into());
    let up = Up::start_with(&arguments);
    assert_eq!(version(&up), before);
    let rewritten = replace(&up);
    assert_ne!(rewritten, before);
    assert_eq!(replace(&up), rewritten);
    assert!(world.is_on_disk("key-two"));
    assert!(up.stop());

    // The plugin is gone. Everything else is served, and errors name what cannot be read.
    let seen = plugin.seen.clone();
    drop(plugin);
    let up = Up::start_unready(&arguments);
    assert!(!up.try_kubectl(&["get", "--raw", "/readyz"], "").ok, "the error names the missing plugin");
    up.kubectl(&["create", "configmap", "d", "--from-literal=a=b"]);
    up.kubectl(&["get", "configmap", "c"]);
    let answer = up.try_kubectl(&["get", "secrets"], "");
    assert!(answer.err.contains("unable to transform key \"/registry/secrets/default/s\""), "{}", answer.err);
    let secret = ["create", "secret", "generic", "t", "--from-literal=a=b"];
    assert!(!up.try_kubectl(&secret, "").ok, "unencryptable values are not stored");
    assert!(!world.is_password_on_disk());

    // The plugin comes back, and nothing was lost.
    let _plugin = KmsPlugin::start_with(&socket, seen);
    eventually("the server finds the plugin again", || {
        up.try_kubectl(&["get", "--raw", "/readyz"], "").ok && up.try_kubectl(&["get", "secret", "s"], "").ok
    });
    assert_eq!(password(&up), PASSWORD_BASE64);
    up.kubectl(&secret);
    assert!(up.stop());
}

#[test]
fn an_unusable_configuration_is_reported() {
    let world = World::new();
    let file = world.directory.path().join("encryption.yaml");
    fs::write(&file, "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n")
        .expect("written");
    let check = |arguments: &[&str], expected: &str| {
        let kubeconfig = world.directory.path().join("kubeconfig");
        let output = setpoint_up(&kubeconfig, arguments).output().expect("the binary starts");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(expected), "{error}");
    };
    let file = file.to_str().expect("a readable path");
    check(
        &["--in-memory", "--encryption-provider-config", file],
        "resources: Required value: at least one resources is required",
    );
    check(
        &["--in-memory", "--encryption-provider-config-automatic-reload"],
        "--encryption-provider-config-automatic-reload must be set with --encryption-provider-config",
    );
}

/// The file size limit simulates a full disk: writes beyond it fail, and raising it frees space.
#[test]
fn a_full_disk_refuses_writes_with_a_reason_and_recovers_without_a_restart() {
    const ROOM: u64 = 1 << 20;
    let world = World::new();
    let data = world.data();
    let up = Up::start_command(|kubeconfig| {
        let plain = setpoint_up(
            kubeconfig,
            &["--data-dir", &data, "--nodes", "0", "--controllers=-*", "--no-scheduler"],
        );
        // A process that writes beyond the limit gets a signal. The child inherits that it is ignored.
        let mut command = Command::new("sh");
        command
            .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
            .arg(plain.get_program())
            .args(plain.get_args());
        command
    });
    let limit = |current| {
        let pid = Pid::from_raw(i32::try_from(up.pid()).expect("a process id")).expect("not zero");
        let maximum = None;
        prlimit(Some(pid), Resource::Fsize, Rlimit { current, maximum }).expect("the limit is set");
    };
    limit(Some(ROOM));
    let filling = "x".repeat(100_000);
    let write = |name: &str| {
        let manifest = format!(
            r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}"}},"data":{{"a":"{filling}"}}}}"#
        );
        up.try_kubectl(&["create", "-f", "-"], &manifest)
    };
    let mut stored = Vec::new();
    let refused = (0..30).find_map(|number| {
        let name = format!("c{number}");
        let answer = write(&name);
        if answer.ok {
            stored.push(name);
            return None;
        }
        Some(answer.err)
    });
    let refused = refused.expect("30 times 100 KB do not fit");
    assert!(refused.contains("(ServiceUnavailable)"), "{refused}");
    assert!(refused.contains("the disk of the data directory is full"), "{refused}");
    assert!(!stored.is_empty());
    for name in &stored {
        up.kubectl(&["get", "configmap", name]);
    }
    assert!(up.kubectl(&["get", "--raw", "/readyz"]).contains("ok"));
    limit(None);
    let answer = write("late");
    assert!(answer.ok, "{}", answer.err);
    stored.push("late".to_owned());
    assert!(up.stop());
    let up = Up::start_with(&["--data-dir", &data, "--nodes", "0"]);
    for name in &stored {
        up.kubectl(&["get", "configmap", name]);
    }
    assert!(up.stop());
}
