//! Chooses the certificate for a client by SNI name, or by the server address it connected to.
//!
//! The rules are v1.34's: a configured name takes precedence over a name in a certificate, an exact name over a
//! wildcard, an earlier certificate over a later one. Without configured names, they are taken from the certificate:
//! its common name if it could be a domain, and its DNS names; never its addresses.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use x509_parser::extensions::GeneralName;

use super::TlsError;
use crate::names;

/// A certificate for some names; by default, those in the certificate.
#[derive(Clone, Debug)]
pub struct NamedCertificate {
    pub certificate: Arc<CertifiedKey>,
    /// Domains, `*.` for one label, or addresses.
    pub names: Vec<String>,
}

/// Certificates by SNI name.
#[derive(Clone, Debug)]
pub struct SniCertificates {
    usual: Arc<CertifiedKey>,
    by_name: Arc<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl SniCertificates {
    pub fn new(usual: Arc<CertifiedKey>, named: &[NamedCertificate]) -> Result<Self, TlsError> {
        let (mut own, mut given) = (BTreeMap::new(), BTreeMap::new());
        for NamedCertificate { certificate, names } in named {
            let (map, names) = if names.is_empty() {
                (&mut own, own_names(certificate)?)
            } else {
                (&mut given, names.clone())
            };
            for name in names {
                map.entry(name.to_lowercase()).or_insert_with(|| certificate.clone());
            }
        }
        own.extend(given);
        Ok(Self { usual, by_name: Arc::new(own) })
    }

    /// Returns the addresses with their own certificate, each with the certificates for clients that connect to it
    /// without a name.
    pub(super) fn by_address(&self) -> Vec<(IpAddr, Self)> {
        let address = |(name, certificate): (&String, &Arc<CertifiedKey>)| {
            Some((name.parse().ok()?, Self { usual: certificate.clone(), by_name: self.by_name.clone() }))
        };
        self.by_name.iter().filter_map(address).collect()
    }

    fn find(&self, name: &str) -> &Arc<CertifiedKey> {
        let name = name.to_lowercase();
        let wildcard = || match name.split_once('.') {
            Some((_, rest)) => format!("*.{rest}"),
            None => "*".into(),
        };
        let found = self.by_name.get(&name).or_else(|| self.by_name.get(&wildcard()));
        found.filter(|_| !name.is_empty()).unwrap_or(&self.usual)
    }
}

impl ResolvesServerCert for SniCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.find(hello.server_name().unwrap_or_default()).clone())
    }
}

/// Returns the names in a certificate.
fn own_names(certificate: &CertifiedKey) -> Result<Vec<String>, TlsError> {
    let leaf = certificate.cert.first().ok_or(TlsError::NoCertificate)?;
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).map_err(|_| TlsError::NoCertificate)?;
    let common = parsed.subject().iter_common_name().filter_map(|name| name.as_str().ok()).last();
    let is_domain = |name: &&str| {
        *name == "*"
            || name.parse::<IpAddr>().is_err()
                && names::dns_subdomain(name.strip_prefix("*.").unwrap_or(name)).is_empty()
    };
    let mut names: Vec<String> = common.filter(is_domain).map(Into::into).into_iter().collect();
    let alternatives = parsed.subject_alternative_name().ok().flatten();
    for name in alternatives.iter().flat_map(|names| &names.value.general_names) {
        if let GeneralName::DNSName(name) = name {
            names.push((*name).into());
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::{Authority, certified};
    use jiff::Timestamp;

    #[test]
    fn the_certificate_of_the_most_precise_name_is_shown() {
        let now: Timestamp = "2025-03-04T05:06:07Z".parse().unwrap();
        let authority = Authority::generate(now).unwrap();
        let make = |name: &str| {
            let made = authority.client_certificate(name, &[], now).unwrap();
            Arc::new(certified(&made.certificate, &made.key).unwrap())
        };
        let named = |certificate: &Arc<CertifiedKey>, names: &[&str]| NamedCertificate {
            certificate: certificate.clone(),
            names: names.iter().map(|name| (*name).into()).collect(),
        };
        let [usual, first, second, star, own] = ["usual", "first", "second", "star", "own.example"].map(make);
        let certificates = SniCertificates::new(
            usual.clone(),
            &[
                named(&first, &["a.example", "10.0.0.1"]),
                named(&second, &["a.example", "b.example"]),
                named(&star, &["*.example"]),
                named(&own, &[]),
            ],
        )
        .unwrap();
        let shown = |by_name: &SniCertificates, name: &str| {
            let found = by_name.find(name);
            let all =
                [("usual", &usual), ("first", &first), ("second", &second), ("star", &star), ("own", &own)];
            all.into_iter().find(|(_, one)| Arc::ptr_eq(one, found)).map(|(name, _)| name).unwrap()
        };
        for (name, expected) in [
            ("", "usual"),
            ("a.example", "first"),
            ("A.Example", "first"),
            ("b.example", "second"),
            ("c.example", "star"),
            ("d.c.example", "usual"),
            ("own.example", "own"),
            ("elsewhere", "usual"),
        ] {
            assert_eq!(shown(&certificates, name), expected, "{name}");
        }
        let [(address, to_address)] = &certificates.by_address()[..] else { panic!("one address") };
        assert_eq!(*address, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!((shown(to_address, ""), shown(to_address, "b.example")), ("first", "second"));
    }
}
