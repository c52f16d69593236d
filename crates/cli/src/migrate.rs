//! `setpoint migrate`: moves all objects between a data directory and an etcd, with their resource versions.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use setpoint::{Clock, Rng, Runtime};
use setpoint_cluster::Cluster;
use setpoint_controllers::FeatureGates;
use setpoint_encryption::{Encryption, Transformers};
use setpoint_store::etcd::EtcdRecords;
use setpoint_store::{Contents, Key, read_contents, write_contents};

use crate::apiserver_flags::encryption::EncryptionFlags;
use crate::apiserver_flags::etcd::EtcdFlags;

/// The value of --from or --to that stands for the etcd of --etcd-servers.
const ETCD: &str = "etcd";
/// How long events are kept after they were moved: how much of their time is left is not known.
const EVENTS: Duration = Duration::from_secs(3600);

#[derive(Debug, Args)]
pub(crate) struct Migrate {
    /// Where the objects are: a data directory, or etcd for that of --etcd-servers.
    #[arg(long, value_name = "PLACE")]
    from: PathBuf,
    /// Where the objects go: a data directory without a store, or etcd, which must be empty.
    #[arg(long, value_name = "PLACE")]
    to: PathBuf,
    /// Feature gates of the API server, as Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "GATES", hide_default_value = true)]
    feature_gates: FeatureGates,
    #[command(flatten)]
    etcd: EtcdFlags,
    #[command(flatten)]
    encryption: EncryptionFlags,
}

impl Migrate {
    async fn etcd(
        &self,
        encryption: Option<Arc<dyn Transformers>>,
        clock: &Clock,
    ) -> anyhow::Result<EtcdRecords> {
        let cluster = self.etcd.connect(clock).await?.context("--etcd-servers: expected the URLs of etcd")?;
        let codec = self.etcd.codec(&Cluster::features(&self.feature_gates))?;
        Ok(EtcdRecords::new(
            Arc::new(cluster),
            Arc::new(codec),
            encryption,
            self.etcd.prefix(),
            clock.clone(),
        ))
    }
}

pub(crate) async fn run(arguments: Migrate) -> anyhow::Result<()> {
    let is_etcd = |place: &Path| place == Path::new(ETCD);
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let encryption = arguments.encryption.load(&runtime).await?;
    let transformers = encryption.map(|encryption: Arc<Encryption>| encryption as Arc<dyn Transformers>);
    match (is_etcd(&arguments.from), is_etcd(&arguments.to)) {
        (false, true) => to_etcd(&arguments, transformers, &runtime.clock).await,
        (true, false) => from_etcd(&arguments, transformers, &runtime.clock).await,
        _ => bail!("--from and --to: expected one data directory and one {ETCD}"),
    }
}

async fn to_etcd(
    arguments: &Migrate,
    transformers: Option<Arc<dyn Transformers>>,
    clock: &Clock,
) -> anyhow::Result<()> {
    let contents = read_contents(&arguments.from, transformers.clone()).await;
    let mut contents = contents.context("cannot read the data directory")?;
    contents.records.retain(|record| !is_of_servers(&record.key));
    let etcd = arguments.etcd(transformers, clock).await?;
    let last = contents.revision;
    let progress = |revision| eprintln!("etcd is at revision {revision} of {last}");
    etcd.write(&contents, &progress)
        .await
        .context("cannot write to etcd; run the same command again to continue")?;
    etcd.verify(&contents).await.context("the copy is not faithful")?;
    report(&contents);
    Ok(())
}

async fn from_etcd(
    arguments: &Migrate,
    transformers: Option<Arc<dyn Transformers>>,
    clock: &Clock,
) -> anyhow::Result<()> {
    let etcd = arguments.etcd(transformers.clone(), clock).await?;
    let is_event = |key: &Key| matches!(key.resource.as_str(), "events" | "events.k8s.io/events");
    let kept = |key: &Key| is_event(key).then_some(EVENTS);
    let contents = etcd.read(is_of_servers, kept).await.context("cannot read etcd")?;
    let written = write_contents(&contents, &arguments.to, transformers.clone());
    let written = written.context("cannot write the data directory")?;
    let read =
        read_contents(&arguments.to, transformers).await.context("cannot read back the data directory")?;
    check_same(&contents, &read).context("the copy is not faithful")?;
    ensure!(written.records == contents.records.len() as u64, "the copy has {} records", written.records);
    etcd.check_unchanged(contents.revision).await.context("stop all servers on this etcd first")?;
    report(&contents);
    Ok(())
}

/// Where API servers are is not moved with the objects.
fn is_of_servers(key: &Key) -> bool {
    key.resource.as_str() == "masterleases"
}

fn check_same(written: &Contents, read: &Contents) -> anyhow::Result<()> {
    ensure!(written.revision == read.revision, "its revision is {}", read.revision);
    let mut expected: Vec<_> = written.records.iter().collect();
    let mut found: Vec<_> = read.records.iter().collect();
    expected.sort_by(|one, other| one.key.cmp(&other.key));
    found.sort_by(|one, other| one.key.cmp(&other.key));
    ensure!(expected.len() == found.len(), "it has {} objects, expected {}", found.len(), expected.len());
    for (one, other) in expected.into_iter().zip(found) {
        let is_same = one.key == other.key && one.modified == other.modified && one.whole() == other.whole();
        ensure!(is_same, "{} differs", one.key);
    }
    Ok(())
}

fn report(contents: &Contents) {
    println!("Moved {} objects, revision {}", contents.records.len(), contents.revision);
}
