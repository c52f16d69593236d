//! Flags for the keys that sign certificates and tokens.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Args;
use setpoint_controllers::flags::duration;
use setpoint_controllers::{CertificateAuthority, Options, Signers, TokenSigner};

#[derive(Debug, Args)]
#[command(next_help_heading = "Keys")]
pub(crate) struct SigningFlags {
    /// Root CA published in every namespace [default: the CA of the kubeconfig].
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,
    /// Private key that signs service account tokens. Unset, token Secrets are not filled.
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,
    /// CA certificate for signers without their own.
    #[arg(long, value_name = "FILE")]
    cluster_signing_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-cert-file.
    #[arg(long, value_name = "FILE")]
    cluster_signing_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kubelet-serving.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kubelet_serving_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-kubelet-serving-cert-file.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kubelet_serving_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client-kubelet.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kubelet_client_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-kubelet-client-cert-file.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kubelet_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/kube-apiserver-client.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kube_apiserver_client_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-kube-apiserver-client-cert-file.
    #[arg(long, value_name = "FILE")]
    cluster_signing_kube_apiserver_client_key_file: Option<PathBuf>,
    /// CA certificate for the signer kubernetes.io/legacy-unknown.
    #[arg(long, value_name = "FILE")]
    cluster_signing_legacy_unknown_cert_file: Option<PathBuf>,
    /// Private key of --cluster-signing-legacy-unknown-cert-file.
    #[arg(long, value_name = "FILE")]
    cluster_signing_legacy_unknown_key_file: Option<PathBuf>,
    /// Maximum lifetime of signed certificates.
    #[arg(long, default_value = "8760h", value_name = "DURATION", value_parser = duration)]
    cluster_signing_duration: Duration,
}

/// The certificate and key files of a signer, and the flag for the former.
type Files<'a> = (&'a Option<PathBuf>, &'a Option<PathBuf>, &'a str);

impl SigningFlags {
    pub(crate) fn apply(&self, options: &mut Options, config: &kube::Config) -> anyhow::Result<()> {
        options.root_ca = match &self.root_ca_file {
            Some(path) => Some(read("root-ca-file", path)?),
            None => config.root_cert.as_ref().map(|certificates| pem(certificates)),
        };
        if let Some(path) = &self.service_account_private_key_file {
            let flag = "service-account-private-key-file";
            let signer = TokenSigner::from_pem(&read(flag, path)?);
            options.token_signer = Some(signer.with_context(|| format!("--{flag} {}", path.display()))?);
        }
        options.signers = self.signers()?;
        Ok(())
    }

    fn signers(&self) -> anyhow::Result<Signers> {
        let all = (&self.cluster_signing_cert_file, &self.cluster_signing_key_file, "cluster-signing");
        let own: [Files<'_>; 4] = [
            (
                &self.cluster_signing_kubelet_serving_cert_file,
                &self.cluster_signing_kubelet_serving_key_file,
                "cluster-signing-kubelet-serving",
            ),
            (
                &self.cluster_signing_kubelet_client_cert_file,
                &self.cluster_signing_kubelet_client_key_file,
                "cluster-signing-kubelet-client",
            ),
            (
                &self.cluster_signing_kube_apiserver_client_cert_file,
                &self.cluster_signing_kube_apiserver_client_key_file,
                "cluster-signing-kube-apiserver-client",
            ),
            (
                &self.cluster_signing_legacy_unknown_cert_file,
                &self.cluster_signing_legacy_unknown_key_file,
                "cluster-signing-legacy-unknown",
            ),
        ];
        let specific = own.iter().any(|(certificate, key, _)| certificate.is_some() || key.is_some());
        if specific && (all.0.is_some() || all.1.is_some()) {
            bail!(
                "cannot specify --cluster-signing-{{cert,key}}-file and other --cluster-signing-*-file flags at the \
                 same time"
            );
        }
        let shared = authority(all)?;
        let one = |files: Files<'_>| anyhow::Ok(authority(files)?.or_else(|| shared.clone()));
        let [serving, kubelet, client, legacy] = own;
        Ok(Signers {
            kubelet_serving: one(serving)?,
            kubelet_client: one(kubelet)?,
            kube_apiserver_client: one(client)?,
            legacy_unknown: one(legacy)?,
            duration: self.cluster_signing_duration,
        })
    }
}

fn authority((certificate, key, flag): Files<'_>) -> anyhow::Result<Option<CertificateAuthority>> {
    let (certificate, key) = match (certificate, key) {
        (None, None) => return Ok(None),
        (Some(certificate), Some(key)) => (certificate, key),
        _ => bail!("--{flag}-cert-file and --{flag}-key-file must be set together"),
    };
    let certificate = read(&format!("{flag}-cert-file"), certificate)?;
    let key = read(&format!("{flag}-key-file"), key)?;
    let authority = CertificateAuthority::from_pem(&certificate, &key);
    authority.map(Some).with_context(|| format!("--{flag}-cert-file and --{flag}-key-file"))
}

/// Reads a file that a flag names.
pub(crate) fn read(flag: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("--{flag}: cannot read {}", path.display()))
}

/// Encodes certificates as PEM.
fn pem(certificates: &[Vec<u8>]) -> String {
    let block = |der: &Vec<u8>| {
        let text = STANDARD.encode(der);
        let lines: Vec<_> = text.as_bytes().chunks(64).map(String::from_utf8_lossy).collect();
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", lines.join("\n"))
    };
    certificates.iter().map(block).collect()
}
