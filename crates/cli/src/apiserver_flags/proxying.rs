//! Flags for connections the API server makes on behalf of clients: to kubelets, aggregated API servers and peers.
//!
//! As in v1.34, files are loaded and values are checked at startup. Requests to peers are not proxied: flags that would
//! affect that are accepted with a single warning that names them, as are those that have no effect in v1.34 either.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgAction, Args};
use setpoint_apiserver::KubeletConfig;
use setpoint_apiserver::aggregation::ProxyIdentity;
use setpoint_apiserver::tls::{certificates, certified};
use setpoint_controllers::FeatureGates;
use setpoint_controllers::flags::duration;

use super::read;
use crate::pki::Pair;

/// The feature gate that lets API servers of different versions forward requests to each other.
const PEERS: &str = "UnknownVersionInteroperabilityProxy";

const ADDRESS_TYPES: [&str; 5] = ["Hostname", "InternalDNS", "InternalIP", "ExternalDNS", "ExternalIP"];
const KUBELET_PORT: u16 = 10250;
const KUBELET_READ_ONLY_PORT: u16 = 10255;

#[derive(Debug, Args)]
#[command(next_help_heading = "Proxying")]
pub(crate) struct ProxyingFlags {
    /// Client certificate presented to aggregated API servers. Reloaded when the file changes
    /// [default: one signed by a generated CA].
    #[arg(long, value_name = "FILE")]
    proxy_client_cert_file: Option<PathBuf>,
    /// Private key of --proxy-client-cert-file.
    #[arg(long, value_name = "FILE")]
    proxy_client_key_file: Option<PathBuf>,
    /// Resolve the Services of webhooks and aggregated API servers to endpoints only. Services of type ExternalName are
    /// then an error.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = false,
        action = ArgAction::Set, value_name = "BOOL")]
    enable_aggregator_routing: bool,
    /// Reject redirects by aggregated API servers with an error.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value_t = true,
        action = ArgAction::Set, value_name = "BOOL")]
    aggregator_reject_forwarding_redirect: bool,
    /// CA bundle for the serving certificates of kubelets. Unset, any certificate is accepted.
    #[arg(long, value_name = "FILE")]
    kubelet_certificate_authority: Option<PathBuf>,
    /// Client certificate presented to kubelets. Reloaded when the file changes
    /// [default: one signed by the cluster CA].
    #[arg(long, value_name = "FILE")]
    kubelet_client_certificate: Option<PathBuf>,
    /// Private key of --kubelet-client-certificate.
    #[arg(long, value_name = "FILE")]
    kubelet_client_key: Option<PathBuf>,
    /// Types of node addresses used to reach kubelets, in order of preference.
    #[arg(long, value_delimiter = ',', value_name = "TYPES",
        default_values_t = ADDRESS_TYPES.map(String::from))]
    kubelet_preferred_address_types: Vec<String>,
    /// No effect, as in Kubernetes: requests to kubelets end with the client's.
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = duration)]
    kubelet_timeout: Duration,
    /// Port of kubelets whose nodes do not report one. Deprecated.
    #[arg(long, default_value_t = KUBELET_PORT, value_name = "PORT")]
    kubelet_port: u16,
    /// No effect, as in Kubernetes. Deprecated.
    #[arg(long, default_value_t = KUBELET_READ_ONLY_PORT, value_name = "PORT")]
    kubelet_read_only_port: u16,
    #[command(flatten)]
    peers: PeerFlags,
    /// Not supported: connections are made directly.
    #[arg(long, value_name = "FILE")]
    egress_selector_config_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
struct PeerFlags {
    /// CA bundle for the serving certificates of other API servers of the cluster.
    #[arg(long, value_name = "FILE")]
    peer_ca_file: Option<PathBuf>,
    /// Address at which other API servers of the cluster reach this one.
    #[arg(long, value_name = "IP")]
    peer_advertise_ip: Option<std::net::IpAddr>,
    /// Port at which other API servers of the cluster reach this one.
    #[arg(long, value_name = "PORT")]
    peer_advertise_port: Option<u16>,
}

impl ProxyingFlags {
    /// Checks the flags and their files, and warns about those without effect.
    pub(crate) fn check(&self, gates: &FeatureGates) -> anyhow::Result<()> {
        if self.egress_selector_config_file.is_some() {
            bail!(
                "--egress-selector-config-file: egress selectors are not supported, the API server connects \
                 directly: leave the flag out and let the network route to nodes and webhooks"
            );
        }
        self.peers.check(gates)?;
        let proxy = (&self.proxy_client_cert_file, &self.proxy_client_key_file);
        check_pair("proxy-client-cert-file", "proxy-client-key-file", proxy)?;
        let kubelet = (&self.kubelet_client_certificate, &self.kubelet_client_key);
        check_pair("kubelet-client-certificate", "kubelet-client-key", kubelet)?;
        if let Some(file) = &self.peers.peer_ca_file {
            authorities_in("peer-ca-file", file)?;
        }
        if let Some(warning) = self.warning() {
            tracing::warn!("{warning}");
        }
        Ok(())
    }

    /// Whether Services are resolved to endpoints only.
    pub(crate) fn routes_to_endpoints(&self) -> bool {
        self.enable_aggregator_routing
    }

    /// Whether a redirect by an aggregated API server is an error.
    pub(crate) fn rejects_redirects(&self) -> bool {
        self.aggregator_reject_forwarding_redirect
    }

    /// Returns the files of the client certificate for aggregated API servers, if the flags name them.
    pub(crate) fn proxy_client(&self) -> Option<Pair> {
        let (certificate, key) = (self.proxy_client_cert_file.clone()?, self.proxy_client_key_file.clone()?);
        Some(Pair { certificate, key })
    }

    /// Returns the files of the client certificate for kubelets, if the flags name them.
    pub(crate) fn kubelet_client(&self) -> Option<Pair> {
        let (certificate, key) = (self.kubelet_client_certificate.clone()?, self.kubelet_client_key.clone()?);
        Some(Pair { certificate, key })
    }

    /// Returns how kubelets are reached, with this certificate. The CA of kubelets may be the cluster CA, which is
    /// generated at the first start: call this after that.
    pub(crate) fn kubelets(&self, identity: ProxyIdentity) -> anyhow::Result<KubeletConfig> {
        let authorities = self.kubelet_certificate_authority.as_deref();
        let authorities = authorities.map(|file| authorities_in("kubelet-certificate-authority", file));
        Ok(KubeletConfig {
            authorities: authorities.transpose()?.map(Into::into),
            identity,
            address_types: self.kubelet_preferred_address_types.clone(),
            port: self.kubelet_port,
            dial: None,
        })
    }

    /// Returns a warning that names the flags that were set but have no effect.
    fn warning(&self) -> Option<String> {
        let flags = [
            ("kubelet-read-only-port", self.kubelet_read_only_port != KUBELET_READ_ONLY_PORT),
            ("kubelet-timeout", self.kubelet_timeout != Duration::from_secs(5)),
            ("peer-ca-file", self.peers.peer_ca_file.is_some()),
        ];
        let set: Vec<_> =
            flags.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| format!("--{name}")).collect();
        (!set.is_empty()).then(|| format!("these flags have no effect: {}", set.join(", ")))
    }
}

impl PeerFlags {
    fn check(&self, gates: &FeatureGates) -> anyhow::Result<()> {
        let flags = [
            ("peer-ca-file", self.peer_ca_file.is_some()),
            ("peer-advertise-ip", self.peer_advertise_ip.is_some()),
            ("peer-advertise-port", self.peer_advertise_port.is_some()),
        ];
        match flags.iter().find(|(_, is_set)| *is_set && !gates.on(PEERS)) {
            Some((name, _)) => bail!("--{name} requires {PEERS} feature to be turned on"),
            None => Ok(()),
        }
    }
}

/// Checks that a certificate and its key are given together and match.
fn check_pair(
    certificate_flag: &str,
    key_flag: &str,
    files: (&Option<PathBuf>, &Option<PathBuf>),
) -> anyhow::Result<()> {
    let (certificate, key) = match files {
        (Some(certificate), Some(key)) => (certificate, key),
        (None, None) => return Ok(()),
        (Some(_), None) => bail!("--{certificate_flag} needs --{key_flag}"),
        (None, Some(_)) => bail!("--{key_flag} needs --{certificate_flag}"),
    };
    let pair = certified(&read(certificate_flag, certificate)?, &read(key_flag, key)?);
    pair.map(drop).with_context(|| {
        format!("--{certificate_flag} {}, --{key_flag} {}", certificate.display(), key.display())
    })
}

/// Reads a bundle of CAs, which must not be empty.
fn authorities_in(flag: &str, file: &Path) -> anyhow::Result<String> {
    let pem = read(flag, file)?;
    certificates(&pem).with_context(|| format!("--{flag} {}", file.display()))?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use setpoint_apiserver::tls::Authority;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        flags: ProxyingFlags,
    }

    fn flags(arguments: &[&str]) -> ProxyingFlags {
        Command::try_parse_from([&["test"], arguments].concat()).expect("known flags").flags
    }

    fn problem(arguments: &[&str]) -> String {
        format!("{:#}", flags(arguments).check(&FeatureGates::default()).unwrap_err())
    }

    #[test]
    fn a_certificate_needs_its_key_and_both_must_load() {
        let directory = tempfile::tempdir().unwrap();
        let now = setpoint::Clock::system().now();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (one, other) = (Authority::generate(now).unwrap(), Authority::generate(now).unwrap());
        let (certificate, key) = (file("crt", &one.identity().certificate), file("key", &one.identity().key));
        let wrong = file("wrong", &other.identity().key);
        for (cert_flag, key_flag) in [
            ("--proxy-client-cert-file", "--proxy-client-key-file"),
            ("--kubelet-client-certificate", "--kubelet-client-key"),
        ] {
            let both = flags(&[cert_flag, &certificate, key_flag, &key]);
            both.check(&FeatureGates::default()).unwrap();
            assert_eq!(both.kubelet_client().is_some(), cert_flag == "--kubelet-client-certificate");
            assert_eq!(both.proxy_client().is_some(), cert_flag == "--proxy-client-cert-file");
            assert_eq!(problem(&[cert_flag, &certificate]), format!("{cert_flag} needs {key_flag}"));
            assert_eq!(problem(&[key_flag, &key]), format!("{key_flag} needs {cert_flag}"));
            let mismatch = problem(&[cert_flag, &certificate, key_flag, &wrong]);
            assert!(mismatch.ends_with("the private key does not match the certificate"), "{mismatch}");
            let missing = problem(&[cert_flag, "/does/not/exist", key_flag, &key]);
            assert!(missing.starts_with(&format!("{cert_flag} /does/not/exist: cannot read")), "{missing}");
        }
        let kubelets =
            |file| flags(&["--kubelet-certificate-authority", file]).kubelets(ProxyIdentity::default());
        assert!(kubelets(&certificate).unwrap().authorities.is_some());
        let empty = format!("{:#}", kubelets(&key).err().unwrap());
        assert!(empty.ends_with("there is no certificate in the PEM"), "{empty}");
    }

    #[test]
    fn unsupported_flag_values_are_rejected() {
        let peer = "--peer-advertise-ip requires UnknownVersionInteroperabilityProxy feature to be turned on";
        assert_eq!(problem(&["--peer-advertise-ip", "192.0.2.1"]), peer);
        let gates = FeatureGates::default().with(PEERS, true).unwrap();
        flags(&["--peer-advertise-ip", "192.0.2.1"]).check(&gates).unwrap();
        let egress = problem(&["--egress-selector-config-file", "x"]);
        assert!(
            egress.starts_with("--egress-selector-config-file: egress selectors are not supported"),
            "{egress}"
        );
        assert_eq!(flags(&[]).warning(), None);
        let idle =
            flags(&["--kubelet-timeout=1s", "--kubelet-read-only-port=1", "--kubelet-port=2"]).warning();
        let expected = "these flags have no effect: --kubelet-read-only-port, --kubelet-timeout";
        assert_eq!(idle.as_deref(), Some(expected));
    }

    #[test]
    fn flags_configure_kubelet_connections() {
        let defaults = flags(&[]).kubelets(ProxyIdentity::default()).unwrap();
        assert_eq!((defaults.port, defaults.authorities.is_none()), (10250, true));
        assert_eq!(defaults.address_types, ADDRESS_TYPES);
        let given = flags(&["--kubelet-port=1", "--kubelet-preferred-address-types=InternalIP,Hostname"]);
        let given = given.kubelets(ProxyIdentity::default()).unwrap();
        assert_eq!((given.port, given.address_types), (1, vec!["InternalIP".into(), "Hostname".into()]));
    }
}
