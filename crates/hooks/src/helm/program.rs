//! `helm` as a child process.
//!
//! Each run has a directory of its own with its values, its kubeconfig and Helm's folders. Nothing of the user's Helm
//! configuration is used, and nothing of the environment but what programs need to run.
//!
//! Bounds: as many processes as configured, each with the time limit of Helm itself and a little more, and 128 KiB of
//! output.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use setpoint::Clock;
use tokio::sync::{OnceCell, Semaphore};

use super::runner::{Helm, HelmCall, HelmVerb};
use crate::gateway::{Access, Gateway};
use crate::program::{Run, located};
use crate::scratch::Scratch;

/// How much longer than its own time limit a run may take.
const GRACE: Duration = Duration::from_secs(30);
/// How long `helm version` may take.
const VERSION_WITHIN: Duration = Duration::from_secs(30);
/// The longest error that is shown.
const MAX_ERROR: usize = 2048;

/// The settings of the program.
#[derive(Clone, Debug)]
pub struct HelmOptions {
    /// The program, by path or by name.
    pub program: PathBuf,
    /// How many processes run at the same time.
    pub processes: usize,
    /// How long Helm waits for hooks.
    pub timeout: Duration,
}

impl Default for HelmOptions {
    fn default() -> Self {
        Self { program: "helm".into(), processes: 4, timeout: Duration::from_secs(300) }
    }
}

/// The installed `helm`, version 3 or 4.
pub struct HelmProgram(Arc<Inner>);

struct Inner {
    options: HelmOptions,
    clock: Clock,
    manager: String,
    places: Semaphore,
    gateway: OnceCell<Gateway>,
    /// The major version.
    version: OnceCell<u32>,
}

impl HelmProgram {
    /// Prepares the program. It is started with the first release.
    pub fn new(mut options: HelmOptions, clock: &Clock) -> Self {
        options.program = located(&options.program);
        let name = options.program.file_name().map(|name| name.to_string_lossy().into_owned());
        let places = Semaphore::new(options.processes.clamp(1, 64));
        let manager = name.unwrap_or_else(|| "helm".to_owned());
        let (gateway, version) = Default::default();
        Self(Arc::new(Inner { options, clock: clock.clone(), manager, places, gateway, version }))
    }
}

impl Helm for HelmProgram {
    fn run(&self, call: HelmCall, access: Arc<Access>) -> BoxFuture<'static, Result<(), String>> {
        let inner = self.0.clone();
        async move { inner.run(call, access).await }.boxed()
    }

    fn field_manager(&self) -> &str {
        &self.0.manager
    }
}

impl Inner {
    async fn run(&self, call: HelmCall, access: Arc<Access>) -> Result<(), String> {
        let _place = self.places.acquire().await;
        let version = *self.version.get_or_try_init(|| self.find_version()).await?;
        let starting =
            async { Gateway::start().await.map_err(|error| format!("cannot listen on loopback: {error}")) };
        let entry = self.gateway.get_or_try_init(|| starting).await?.open(access)?;
        let scratch = Scratch::new()?;
        scratch.write("kubeconfig", &entry.kubeconfig(&call.namespace))?;
        scratch.write("values.json", &call.values.to_string())?;
        let arguments = arguments(&call, version, self.options.timeout);
        let finished = self.start(&scratch, &arguments, self.options.timeout + GRACE).await?;
        tracing::debug!(release = call.release, ?arguments, output = finished.stdout, "ran helm");
        finished.failure().map_or(Ok(()), |why| Err(shortened(&why)))
    }

    async fn start(
        &self,
        scratch: &Scratch,
        arguments: &[String],
        limit: Duration,
    ) -> Result<crate::program::Finished, String> {
        let run = Run {
            program: &self.options.program,
            arguments,
            environment: environment(scratch.path()),
            directory: scratch.path(),
            limit,
        };
        run.finish(&self.clock).await
    }

    async fn find_version(&self) -> Result<u32, String> {
        let arguments = ["version", "--template", "{{.Version}}"].map(str::to_owned);
        let finished = self.start(&Scratch::new()?, &arguments, VERSION_WITHIN).await?;
        let wrong = |why: &str| format!("{} version: {why}", self.options.program.display());
        if let Some(why) = finished.failure() {
            return Err(wrong(&shortened(&why)));
        }
        let text = finished.stdout.trim().trim_start_matches('v');
        let major = text.split('.').next().and_then(|major| major.parse().ok());
        major.filter(|major| *major >= 3).ok_or_else(|| wrong(&format!("expected 3 or 4, found {text:?}")))
    }
}

/// Returns the whole environment of a run.
fn environment(home: &Path) -> BTreeMap<String, String> {
    let inherited = ["PATH", "TMPDIR", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"];
    let inherited =
        inherited.into_iter().filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)));
    let inside = |name: &str| home.join(name).to_string_lossy().into_owned();
    let own = [
        ("HOME", home.to_string_lossy().into_owned()),
        ("KUBECONFIG", inside("kubeconfig")),
        ("HELM_CACHE_HOME", inside("cache")),
        ("HELM_CONFIG_HOME", inside("config")),
        ("HELM_DATA_HOME", inside("data")),
        ("HELM_DRIVER", "secret".to_owned()),
        ("NO_PROXY", "127.0.0.1".to_owned()),
    ];
    inherited.chain(own.map(|(name, value)| (name.to_owned(), value))).collect()
}

fn arguments(call: &HelmCall, version: u32, timeout: Duration) -> Vec<String> {
    let HelmCall { verb, release, namespace, chart, .. } = call;
    let chart = chart.to_string_lossy().into_owned();
    let mut arguments = vec![verb.text().to_owned(), release.clone()];
    match verb {
        HelmVerb::Install | HelmVerb::Upgrade { .. } => {
            arguments.extend([chart, "--values=values.json".to_owned()]);
            if let HelmVerb::Upgrade { force } = verb {
                // The values of the last revision count for nothing, even if there are none now.
                arguments.push("--reset-values".to_owned());
                arguments.extend(updating(*force, version));
            }
        }
        HelmVerb::Rollback { to, force } => {
            arguments.push(to.to_string());
            arguments.extend(updating(*force, version));
        }
        HelmVerb::Uninstall { keeps_history } => {
            arguments.push("--ignore-not-found".to_owned());
            arguments.extend(keeps_history.then(|| "--keep-history".to_owned()));
        }
    }
    arguments.extend([format!("--namespace={namespace}"), format!("--timeout={}s", timeout.as_secs())]);
    arguments
}

/// Returns how objects are updated. Helm 4 applies them on the server, and takes fields over from other managers.
fn updating(force: bool, version: u32) -> Vec<String> {
    let flags: &[&str] = match (version, force) {
        (3, false) => &[],
        (3, true) => &["--force"],
        (_, false) => &["--server-side=true", "--force-conflicts"],
        (_, true) => &["--server-side=false", "--force-replace"],
    };
    flags.iter().map(|flag| (*flag).to_owned()).collect()
}

/// Returns the end of an error, where Helm says what it is.
fn shortened(why: &str) -> String {
    let words: Vec<&str> = why.lines().filter(|line| !line.starts_with("level=")).collect();
    let words = if words.is_empty() { why.to_owned() } else { words.join("\n") };
    let skipped = words.chars().count().saturating_sub(MAX_ERROR);
    words.chars().skip(skipped).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_call_is_a_command_line() {
        let check = |verb: HelmVerb, version: u32, expected: &str| {
            let call = HelmCall {
                verb,
                release: "a".into(),
                namespace: "n".into(),
                chart: "/c".into(),
                values: json!({}),
            };
            let found = arguments(&call, version, Duration::from_secs(300)).join(" ");
            assert_eq!(found, format!("{expected} --namespace=n --timeout=300s"));
        };
        check(HelmVerb::Install, 4, "install a /c --values=values.json");
        let upgrade = "upgrade a /c --values=values.json --reset-values";
        check(
            HelmVerb::Upgrade { force: false },
            4,
            &format!("{upgrade} --server-side=true --force-conflicts"),
        );
        check(
            HelmVerb::Upgrade { force: true },
            4,
            &format!("{upgrade} --server-side=false --force-replace"),
        );
        check(HelmVerb::Upgrade { force: false }, 3, upgrade);
        check(HelmVerb::Rollback { to: 2, force: true }, 3, "rollback a 2 --force");
        check(HelmVerb::Uninstall { keeps_history: false }, 4, "uninstall a --ignore-not-found");
        check(
            HelmVerb::Uninstall { keeps_history: true },
            4,
            "uninstall a --ignore-not-found --keep-history",
        );
    }

    #[test]
    fn the_words_of_an_error_are_its_end() {
        assert_eq!(shortened("level=WARN msg=x\nError: no\n"), "Error: no");
        assert_eq!(shortened("level=WARN"), "level=WARN");
        assert_eq!(shortened(&"x".repeat(9000)).len(), MAX_ERROR);
    }
}
