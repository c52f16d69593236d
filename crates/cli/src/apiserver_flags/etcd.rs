//! Flags of etcd.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Args;
use setpoint::Clock;
use setpoint_apiserver::storage::{StorageCodec, StorageMediaType};
use setpoint_apiserver::{Features, kinds};
use setpoint_controllers::flags::duration;
use setpoint_encryption::{Encryption, Transformers};
use setpoint_etcd::{EtcdCluster, EtcdConfig};
use setpoint_store::etcd::{EtcdOptions, EtcdStore};
use setpoint_store::{Limits, Store};

#[derive(Debug, Args)]
#[command(next_help_heading = "etcd")]
pub(crate) struct EtcdFlags {
    /// Store objects in this etcd (3.5 or 3.6) instead of the data directory, as kube-apiserver does: URLs of its
    /// members.
    #[arg(long, value_delimiter = ',', value_name = "URLS")]
    etcd_servers: Vec<String>,
    /// CAs that etcd's certificate is verified with [default: the system's].
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_keyfile"])]
    etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd.
    #[arg(long, value_name = "FILE", requires_all = ["etcd_servers", "etcd_certfile"])]
    etcd_keyfile: Option<PathBuf>,
    /// Start of all keys in etcd.
    #[arg(long, default_value = "/registry", value_name = "PREFIX")]
    etcd_prefix: String,
    /// Not supported: all resources share one history, so they are in one etcd.
    #[arg(long, value_delimiter = ',', value_name = "OVERRIDES")]
    etcd_servers_overrides: Vec<String>,
    /// How often etcd's history is compacted; 0 leaves that to others.
    #[arg(long, default_value = "5m", value_name = "DURATION", value_parser = duration)]
    etcd_compaction_interval: Duration,
    /// Form of built-in kinds in etcd: application/vnd.kubernetes.protobuf or application/json. Both are always read.
    #[arg(long, default_value = "application/vnd.kubernetes.protobuf", value_name = "MEDIA-TYPE",
        value_parser = media_type)]
    storage_media_type: StorageMediaType,
}

fn media_type(text: &str) -> Result<StorageMediaType, String> {
    StorageMediaType::parse(text)
        .ok_or_else(|| "expected application/vnd.kubernetes.protobuf or application/json".to_owned())
}

impl EtcdFlags {
    /// Opens the store in etcd. `None` if the flags name no etcd.
    pub(crate) async fn open(
        &self,
        encryption: Option<&Arc<Encryption>>,
        features: &Features,
        clock: &Clock,
    ) -> anyhow::Result<Option<Arc<dyn Store>>> {
        let Some(cluster) = self.connect(clock).await? else { return Ok(None) };
        let codec = self.codec(features)?;
        let transformers = encryption.map(|encryption| encryption.clone() as Arc<dyn Transformers>);
        let options = EtcdOptions {
            prefix: self.etcd_prefix.clone(),
            limits: Limits::default(),
            compaction_interval: self.etcd_compaction_interval,
        };
        let store =
            EtcdStore::open(Arc::new(cluster), Arc::new(codec), transformers, clock.clone(), options).await;
        Ok(Some(Arc::new(store.context("cannot read etcd")?)))
    }

    /// Connects to etcd. `None` if the flags name none.
    pub(crate) async fn connect(&self, clock: &Clock) -> anyhow::Result<Option<EtcdCluster>> {
        ensure!(
            self.etcd_servers_overrides.is_empty(),
            "--etcd-servers-overrides is not supported: all resources share one history, so they are in the etcd of \
             --etcd-servers"
        );
        if self.etcd_servers.is_empty() {
            return Ok(None);
        }
        ensure!(
            self.etcd_prefix.starts_with('/') && !self.etcd_prefix.contains("//"),
            "--etcd-prefix: {:?} is not a path, expected one such as /registry",
            self.etcd_prefix
        );
        let config = EtcdConfig {
            servers: self.etcd_servers.clone(),
            ca_file: self.etcd_cafile.clone(),
            cert_file: self.etcd_certfile.clone(),
            key_file: self.etcd_keyfile.clone(),
        };
        Ok(Some(EtcdCluster::connect(&config, clock).await.context("cannot use etcd")?))
    }

    /// Returns the start of all keys.
    pub(crate) fn prefix(&self) -> &str {
        &self.etcd_prefix
    }

    /// Returns the layout and the form of stored objects.
    pub(crate) fn codec(&self, features: &Features) -> anyhow::Result<StorageCodec> {
        // Objects of kinds that are not served are still there. Those that are have their own entries, which replace the
        // first ones.
        let all = kinds::with(&Features::enabled_by(|_| true)).into_iter().chain(kinds::with(features));
        Ok(StorageCodec::new(all, self.storage_media_type)?)
    }
}
