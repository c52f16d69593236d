//! `setpoint apiserver`: runs the API server alone, on its own store or on an etcd that several servers share.
//!
//! The flags are kube-apiserver's. Certificates and keys that no flag names are generated in the data directory; servers
//! that share an etcd need the same ones.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use setpoint::{Client, Clock, Rng, Runtime};
use setpoint_apiserver::{ApiServer, Config};
use setpoint_cluster::{identity, in_process_client};
use setpoint_controllers::FeatureGates;
use tokio_util::sync::CancellationToken;

use crate::api_server::{Prepared, Settings, allow_connections, write_kubeconfig};
use crate::apiserver_flags::admission::AdmissionFlags;
use crate::apiserver_flags::apis::ApiFlags;
use crate::apiserver_flags::audit::AuditFlags;
use crate::apiserver_flags::authentication::AuthenticationFlags;
use crate::apiserver_flags::authorization::AuthorizationFlags;
use crate::apiserver_flags::encryption::EncryptionFlags;
use crate::apiserver_flags::etcd::EtcdFlags;
use crate::apiserver_flags::limits::LimitFlags;
use crate::apiserver_flags::proxying::ProxyingFlags;
use crate::apiserver_flags::serving::ServingFlags;
use crate::apiserver_flags::snapshots::SnapshotFlags;
use crate::up::stop_signal;
use crate::{kubelet_access, process};

#[derive(Debug, Args)]
pub(crate) struct Apiserver {
    /// HTTPS port; 0 picks a free one.
    #[arg(long, default_value_t = 6443, value_name = "PORT")]
    secure_port: u16,
    /// Address the server listens on.
    #[arg(long, default_value = "0.0.0.0")]
    bind_address: IpAddr,
    /// Address at which the rest of the cluster reaches this server: its endpoint of the Service `kubernetes`
    /// [default: the bind address, or the source address of outgoing packets].
    #[arg(long, value_name = "IP")]
    advertise_address: Option<IpAddr>,
    /// Directory for certificates and keys that no flag names, and for the store unless --etcd-servers is set.
    #[arg(long, default_value = "setpoint-data")]
    data_dir: PathBuf,
    /// File the admin kubeconfig is written to [default: none is written].
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// CIDR for Service cluster IPs; two, comma-separated, for dual-stack.
    #[arg(long, default_value = "10.0.0.0/24", value_name = "CIDR")]
    service_cluster_ip_range: String,
    /// Range of node ports.
    #[arg(long, default_value = "30000-32767", value_name = "RANGE", value_parser = port_range)]
    service_node_port_range: (u16, u16),
    /// How the endpoints of the Service `kubernetes` are maintained: lease, or none to leave them alone. Leases need
    /// --etcd-servers; without it, this server is the only endpoint.
    #[arg(long, default_value = "lease", value_name = "TYPE", value_parser = ["lease", "none"])]
    endpoint_reconciler_type: String,
    /// Admission plugins to enable in addition to the defaults.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    enable_admission_plugins: Vec<String>,
    /// Admission plugins to disable although they are on by default.
    #[arg(long, value_delimiter = ',', value_name = "PLUGINS")]
    disable_admission_plugins: Vec<String>,
    /// Feature gates, as Name=true,Other=false.
    #[arg(long, default_value = "", value_name = "GATES", hide_default_value = true)]
    feature_gates: FeatureGates,
    #[command(flatten)]
    etcd: EtcdFlags,
    #[command(flatten)]
    apis: ApiFlags,
    #[command(flatten)]
    admission: AdmissionFlags,
    #[command(flatten)]
    authentication: AuthenticationFlags,
    #[command(flatten)]
    authorization: AuthorizationFlags,
    #[command(flatten)]
    audit: AuditFlags,
    #[command(flatten)]
    serving: ServingFlags,
    #[command(flatten)]
    proxying: ProxyingFlags,
    #[command(flatten)]
    encryption: EncryptionFlags,
    #[command(flatten)]
    snapshots: SnapshotFlags,
    #[command(flatten)]
    limits: LimitFlags,
}

/// Parses `30000-32767`, or `30000+2767` as kube-apiserver does.
fn port_range(text: &str) -> Result<(u16, u16), String> {
    let expected = || "expected a range such as 30000-32767".to_owned();
    let number = |text: &str| text.trim().parse::<u16>().map_err(|_| expected());
    let (first, last) = match (text.split_once('-'), text.split_once('+')) {
        (Some((first, last)), _) => (number(first)?, number(last)?),
        (None, Some((first, more))) => {
            let first = number(first)?;
            (first, first.checked_add(number(more)?).ok_or_else(expected)?)
        }
        (None, None) => (number(text)?, number(text)?),
    };
    if first == 0 || first > last { Err(expected()) } else { Ok((first, last)) }
}

impl Apiserver {
    fn settings(&self) -> Settings<'_> {
        Settings {
            port: self.secure_port,
            port_flag: "--secure-port",
            bind_address: self.bind_address,
            advertise_address: self.advertise_address,
            data_dir: Some(&self.data_dir),
            service_cluster_ip_range: &self.service_cluster_ip_range,
            node_ports: self.service_node_port_range,
            is_endpoint: self.endpoint_reconciler_type == "lease",
            enable_admission_plugins: self.enable_admission_plugins.clone(),
            disable_admission_plugins: &self.disable_admission_plugins,
            feature_gates: &self.feature_gates,
            apis: &self.apis,
            admission: &self.admission,
            authentication: &self.authentication,
            authorization: &self.authorization,
            audit: &self.audit,
            serving: &self.serving,
            proxying: &self.proxying,
            encryption: &self.encryption,
            etcd: &self.etcd,
            snapshots: &self.snapshots,
            limits: &self.limits,
        }
    }
}

pub(crate) async fn run(arguments: Apiserver) -> anyhow::Result<()> {
    allow_connections();
    for warning in arguments.feature_gates.warnings() {
        eprintln!("{warning}");
    }
    let settings = arguments.settings();
    let checked = settings.check()?;
    let runtime = Runtime { clock: Clock::system(), rng: Rng::from_entropy() };
    let Prepared { config, parts } = settings.prepare(checked, &runtime).await?;
    let encryption = parts.encryption.clone();
    let metrics = move || {
        let encryption = encryption.as_ref().map_or_else(String::new, |encryption| encryption.metrics());
        encryption + &process::process_metrics()
    };
    let api = ApiServer::start(Config { metrics: Some(std::sync::Arc::new(metrics)), ..config }).await?;
    if arguments.proxying.kubelet_client().is_none() {
        let admin = Client::new(in_process_client(&api, identity::admin()));
        kubelet_access::allow(&admin).await?;
    }
    let stop = stop_signal()?;
    if let Some(path) = &arguments.kubeconfig {
        write_kubeconfig(&settings, path, &parts.url, &parts.credentials)?;
    }
    eprintln!("Serving the Kubernetes API at {}", parts.url);
    let drained = CancellationToken::new();
    let delaying = parts.delay(&api, &arguments.limits, stop);
    let stopping = async {
        delaying.await;
        drained.cancel();
    };
    tokio::join!(stopping, parts.serve(&api, drained.clone()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_ports_has_two_ends_or_a_size() {
        for (text, expected) in [
            ("30000-32767", (30000, 32767)),
            ("30000+10", (30000, 30010)),
            ("80", (80, 80)),
            ("1 - 2", (1, 2)),
        ] {
            assert_eq!(port_range(text), Ok(expected), "{text}");
        }
        for text in ["", "2-1", "0-5", "a-b", "65000+1000", "1-70000"] {
            assert!(port_range(text).is_err(), "{text}");
        }
    }
}
