//! How the API server presents itself and which client certificates it believes: kube-apiserver's flags.

use std::net::IpAddr;
use std::path::PathBuf;

use anyhow::bail;
use clap::Args;
use setpoint_apiserver::tls::{MinVersion, Protocol};

use crate::pki::{Directory, NamedFiles, Pair, ServedFiles};

#[derive(Debug, Args)]
#[command(next_help_heading = "Serving")]
pub(crate) struct ServingFlags {
    /// The certificate of the server, with what leads to its authority after it; one of the cluster's own authority
    /// without it. The file is followed: a new certificate needs no restart.
    #[arg(long, value_name = "FILE")]
    tls_cert_file: Option<PathBuf>,
    /// The private key of --tls-cert-file.
    #[arg(long, value_name = "FILE")]
    tls_private_key_file: Option<PathBuf>,
    /// A certificate and key for some names: CERT,KEY or CERT,KEY:NAME,NAME. Names may begin with `*.` or be
    /// addresses of the server; without names those of the certificate count. May be given more than once.
    #[arg(long, value_name = "FILES", value_parser = named_files)]
    tls_sni_cert_key: Vec<NamedFiles>,
    /// The oldest version of TLS that is spoken: VersionTLS12 or VersionTLS13.
    #[arg(long, value_name = "VERSION", default_value = "VersionTLS12")]
    tls_min_version: MinVersion,
    /// The cipher suites of TLS 1.2, by their names in Go; all that are spoken without it. Those of TLS 1.3 cannot be
    /// chosen.
    #[arg(long, value_name = "SUITES", value_delimiter = ',')]
    tls_cipher_suites: Vec<String>,
    /// Where the certificate is kept that the server makes for itself; in pki below the data directory without it.
    #[arg(long, value_name = "DIR")]
    cert_dir: Option<PathBuf>,
    /// Authorities whose client certificates are believed, besides the cluster's own: any number of certificates. The
    /// file is followed.
    #[arg(long, value_name = "FILE")]
    client_ca_file: Option<PathBuf>,
}

impl ServingFlags {
    /// Whether clients are shown a certificate that is not of the cluster's own authority.
    pub(crate) fn shows_other_certificate(&self) -> bool {
        self.tls_cert_file.is_some()
    }

    pub(crate) fn protocol(&self) -> anyhow::Result<Protocol> {
        match Protocol::new(self.tls_min_version, &self.tls_cipher_suites) {
            Ok(protocol) => Ok(protocol),
            Err(error) => bail!("--tls-cipher-suites: {error}"),
        }
    }

    /// Where what is served comes from.
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

/// CERT,KEY or CERT,KEY:NAME,NAME.
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
    fn a_named_certificate_is_two_files_and_maybe_names() {
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
