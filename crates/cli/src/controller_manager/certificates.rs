//! The certificates that the secure port shows: one for everybody, others for those who ask for a name.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, bail};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use setpoint::Clock;
use setpoint_apiserver::tls::Authority;
use x509_parser::extensions::GeneralName;

use super::signing::read;

/// What files of a certificate that nobody else signs are called, as kube-controller-manager calls them.
const PAIR: &str = "kube-controller-manager";

/// A certificate that nobody else signs, and its key: those of the directory, or new ones, which are kept there.
pub(super) fn own(
    directory: Option<&Path>,
    address: IpAddr,
    clock: &Clock,
) -> anyhow::Result<(String, String)> {
    let files = directory
        .map(|directory| (directory.join(format!("{PAIR}.crt")), directory.join(format!("{PAIR}.key"))));
    if let Some((certificate, key)) = files.as_ref().filter(|(one, other)| one.exists() && other.exists()) {
        return Ok((read("cert-dir", certificate)?, read("cert-dir", key)?));
    }
    let made = Authority::generate(clock.now())?.server_certificate(&[address], clock.now())?;
    if let (Some(directory), Some((certificate, key))) = (directory, files) {
        let written = std::fs::create_dir_all(directory)
            .and_then(|()| std::fs::write(certificate, &made.certificate))
            .and_then(|()| std::fs::write(key, &made.key));
        written.with_context(|| format!("--cert-dir: cannot write to {}", directory.display()))?;
    }
    Ok((made.certificate, made.key))
}

/// A certificate with its key, from what files say.
pub(super) fn certified(certificate: &str, key: &str) -> anyhow::Result<Arc<CertifiedKey>> {
    let chain = rustls_pemfile::certs(&mut certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
    let key = rustls_pemfile::private_key(&mut key.as_bytes())?.context("there is no private key in it")?;
    let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
    let certified = CertifiedKey::new(chain, key);
    if let Err(rustls::Error::InconsistentKeys(_)) = certified.keys_match() {
        bail!("the key is not that of the certificate");
    }
    Ok(Arc::new(certified))
}

/// Which certificate is shown to whom.
#[derive(Debug)]
pub(super) struct Resolver {
    usual: Arc<CertifiedKey>,
    /// By the names that are asked for; `*.` at the beginning stands for one label.
    by_name: Vec<(String, Arc<CertifiedKey>)>,
}

impl Resolver {
    /// `more` are values of `--tls-sni-cert-key`.
    pub(super) fn new(usual: Arc<CertifiedKey>, more: &[String]) -> anyhow::Result<Self> {
        let mut by_name = Vec::new();
        for text in more {
            let (certified, names) = named(text).with_context(|| format!("--tls-sni-cert-key {text}"))?;
            by_name.extend(names.into_iter().map(|name| (name, certified.clone())));
        }
        Ok(Self { usual, by_name })
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let asked = hello.server_name().unwrap_or_default();
        let found = self.by_name.iter().find(|(name, _)| covers(name, asked));
        Some(found.map_or(&self.usual, |(_, certified)| certified).clone())
    }
}

fn covers(name: &str, asked: &str) -> bool {
    match name.strip_prefix("*.") {
        Some(domain) => asked.split_once('.').is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(domain)),
        None => name.eq_ignore_ascii_case(asked),
    }
}

/// CERTIFICATE,KEY or CERTIFICATE,KEY:NAME,NAME: without names those of the certificate.
fn named(text: &str) -> anyhow::Result<(Arc<CertifiedKey>, Vec<String>)> {
    let (files, names) = text.split_once(':').unwrap_or((text, ""));
    let (certificate, key) =
        files.split_once(',').context("expected CERTIFICATE,KEY or CERTIFICATE,KEY:NAME")?;
    let certificate = read("tls-sni-cert-key", Path::new(certificate))?;
    let certified = certified(&certificate, &read("tls-sni-cert-key", Path::new(key))?)?;
    let names = match names {
        "" => own_names(&certified),
        names => names.split(',').map(str::to_owned).collect(),
    };
    Ok((certified, names))
}

/// The names that a certificate is for.
fn own_names(certified: &CertifiedKey) -> Vec<String> {
    let Some(certificate) = certified.cert.first() else { return Vec::new() };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return Vec::new() };
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    let names = alternatives.iter().flat_map(|names| &names.value.general_names);
    let names = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_covered_letter_by_letter_or_by_a_star() {
        for (name, asked, expected) in [
            ("a.example", "a.example", true),
            ("a.example", "A.Example", true),
            ("a.example", "b.example", false),
            ("*.example", "b.example", true),
            ("*.example", "c.b.example", false),
            ("*.example", "", false),
        ] {
            assert_eq!(covers(name, asked), expected, "{name} {asked}");
        }
    }

    #[test]
    fn a_certificate_of_ones_own_is_kept_where_one_says() {
        let directory = tempfile::tempdir().unwrap();
        let clock = Clock::system();
        let address = "127.0.0.1".parse().unwrap();
        let first = own(Some(directory.path()), address, &clock).unwrap();
        assert_eq!(own(Some(directory.path()), address, &clock).unwrap(), first);
        assert_ne!(own(None, address, &clock).unwrap(), first);
        certified(&first.0, &first.1).unwrap();
        let other = own(None, address, &clock).unwrap();
        assert_eq!(
            certified(&first.0, &other.1).unwrap_err().to_string(),
            "the key is not that of the certificate"
        );
    }
}
