//! Serving certificates, TLS settings and client CAs: kube-apiserver's flags.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use setpoint_apiserver::tls::{MinVersion, Protocol};

use crate::pki::{Directory, NamedFiles, Pair, ServedFiles};

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServingFlags {
    /// Serving certificate followed by its intermediates; reloaded when the file changes [default: one signed by the
    /// cluster CA].
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// Private key of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// Certificate and key for some server names: CERT,KEY or CERT,KEY:NAME,NAME. Names may start with `*.` or be
    /// IP addresses; without names, those in the certificate are used. May be repeated.
    #[arg(long, value_name = "FILES", value_parser = named_files)]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// Minimum TLS version: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    tls_min_version: MinVersion,
    /// TLS 1.2 cipher suites, by Go's names; TLS 1.3 suites cannot be chosen [default: all supported].
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Directory for the generated serving certificate [default: pki in the data directory].
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// CA bundle for client certificates, in addition to the cluster CA. Reloaded when the file changes.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
}

impl ServingFlags {
    /// Returns whether the server presents a certificate that the cluster CA did not sign.
    pub(crate) fn shows_other_certificate(&self) -> bool {
        self.tls_cert_file.is_some()
    }

    pub(crate) fn protocol(&self) -> anyhow::Result<Protocol> {
        match Protocol::new(self.tls_min_version, &self.tls_cipher_suites) {
            Ok(protocol) => Ok(protocol),
            Err(error) => bail!("--tls-cipher-suites: {error}"),
        }
    }

    /// Returns the files that the TLS configuration is loaded from.
    pub(crate) fn files(
        &self,
        pki: &Directory,
        addresses: Vec<IpAddr>,
        reads_uid: bool,
        front_proxies: Option<String>,
    ) -> anyhow::Result<ServedFiles> {
        let certificate = match (&self.tls_cert_file, &self.tls_private_key_file) {
            (Some(certificate), Some(key)) => {
                Some(Pair { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            (Some(_), None) => bail!("--tls-cert-file needs --tls-private-key-file"),
            (None, Some(_)) => bail!("--tls-private-key-file needs --tls-cert-file"),
        };
        let own_certificates = match &self.cert_dir {
            Some(directory) => Directory::new(Some(directory.clone())),
            None => pki.clone(),
        };
        Ok(ServedFiles {
            certificate,
            named: self.tls_sni_cert_key.clone(),
            client_authorities: self.client_ca_file.clone(),
            pki: pki.clone(),
            own_certificates,
            addresses,
            reads_uid,
            front_proxies,
        })
    }
}

/// Parses CERT,KEY or CERT,KEY:NAME,NAME.
pub(crate) fn named_files(text: &str) -> Result<NamedFiles, String> {
    let (files, names) = match text.split_once(':') {
        Some((_, names)) if names.trim().is_empty() => return Err("empty names list is not allowed".into()),
        Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
        None => (text, Vec::new()),
    };
    let parts: Vec<&str> = files.split(',').map(str::trim).collect();
    let [certificate, key] = parts[..] else {
        return Err("expected comma separated certificate and key file paths".into());
    };
    Ok(NamedFiles { pair: Pair { certificate: certificate.into(), key: key.into() }, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_certificate_has_two_files_and_optional_names() {
        let parsed = named_files("a.crt, a.key:*.example.com, 10.0.0.1").unwrap();
        assert_eq!(parsed.pair.certificate, PathBuf::from("a.crt"));
        assert_eq!(parsed.pair.key, PathBuf::from("a.key"));
        assert_eq!(parsed.names, ["*.example.com", "10.0.0.1"]);
        assert!(named_files("a.crt,a.key").unwrap().names.is_empty());
        for (text, expected) in [
            ("a.crt", "expected comma separated certificate and key file paths"),
            ("a,b,c", "expected comma separated certificate and key file paths"),
            ("a,b:", "empty names list is not allowed"),
        ] {
            assert_eq!(named_files(text).unwrap_err(), expected, "{text}");
        }
    }
}
