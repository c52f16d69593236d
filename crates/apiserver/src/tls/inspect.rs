//! Reads the contents of a certificate.

use std::net::IpAddr;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use x509_parser::extensions::GeneralName;

use super::{TlsError, certificates};

/// The first certificate in a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateInfo {
    /// `O=system:masters, CN=kubernetes-admin`
    pub subject: String,
    pub issuer: String,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
    /// Whether it is a CA.
    pub is_authority: bool,
    pub dns_names: Vec<String>,
    pub addresses: Vec<IpAddr>,
    der: Vec<u8>,
}

impl CertificateInfo {
    pub fn of_pem(pem: &str) -> Result<Self, TlsError> {
        let der = certificates(pem)?.swap_remove(0).to_vec();
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| TlsError::NoCertificate)?;
        let time = |seconds: i64| Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX);
        let alternatives = parsed.subject_alternative_name().ok().flatten();
        let names = alternatives.iter().flat_map(|names| &names.value.general_names);
        let (mut dns_names, mut addresses) = (Vec::new(), Vec::new());
        for name in names {
            match name {
                GeneralName::DNSName(name) => dns_names.push((*name).to_owned()),
                GeneralName::IPAddress(bytes) => addresses.extend(address(bytes)),
                _ => {}
            }
        }
        Ok(Self {
            subject: parsed.subject().to_string(),
            issuer: parsed.issuer().to_string(),
            not_before: time(parsed.validity().not_before.timestamp()),
            not_after: time(parsed.validity().not_after.timestamp()),
            is_authority: parsed.is_ca(),
            dns_names,
            addresses,
            der: der.clone(),
        })
    }

    /// Whether the first certificate in this PEM file signed it.
    pub fn is_signed_by(&self, authority: &str) -> bool {
        let verified = || -> Option<()> {
            let authority = certificates(authority).ok()?.swap_remove(0);
            let (_, authority) = x509_parser::parse_x509_certificate(&authority).ok()?;
            let (_, own) = x509_parser::parse_x509_certificate(&self.der).ok()?;
            own.verify_signature(Some(authority.public_key())).ok()
        };
        verified().is_some()
    }
}

/// A certificate of a bundle.
pub(crate) struct Bundled {
    pub(crate) der: Vec<u8>,
    pub(crate) not_after: Timestamp,
}

/// Reads all certificates of a bundle.
pub(crate) fn bundled(pem: &str) -> Result<Vec<Bundled>, TlsError> {
    let read = |der: CertificateDer<'static>| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&der).map_err(|_| TlsError::NoCertificate)?;
        let end = parsed.validity().not_after.timestamp();
        let not_after = Timestamp::from_second(end).unwrap_or(Timestamp::MAX);
        Ok(Bundled { der: der.to_vec(), not_after })
    };
    certificates(pem)?.into_iter().map(read).collect()
}

/// Writes a certificate as PEM.
pub(crate) fn pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut pem = String::from("-----BEGIN CERTIFICATE-----\n");
    // Base64 is ASCII, so it can be cut anywhere.
    let mut rest = text.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(64));
        pem.push_str(line);
        pem.push('\n');
        rest = after;
    }
    pem.push_str("-----END CERTIFICATE-----\n");
    pem
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tls::Authority;

    #[test]
    fn a_certificate_shows_its_subject_expiry_and_issuer() {
        let now: Timestamp = "2025-03-04T05:06:07Z".parse().unwrap();
        let (authority, other) = (Authority::generate(now).unwrap(), Authority::generate(now).unwrap());
        let admin = authority.admin_certificate(now).unwrap();
        let admin = CertificateInfo::of_pem(&admin.certificate).unwrap();
        assert_eq!(admin.subject, "O=system:masters, CN=kubernetes-admin");
        assert_eq!(admin.not_after.to_string(), "2026-03-04T00:00:00Z");
        assert!(admin.is_signed_by(&authority.identity().certificate) && !admin.is_authority);
        assert!(!admin.is_signed_by(&other.identity().certificate));
        let server = authority.server_certificate(&["10.0.0.1".parse().unwrap()], now).unwrap();
        let server = CertificateInfo::of_pem(&server.certificate).unwrap();
        assert!(server.addresses.contains(&"10.0.0.1".parse().unwrap()));
        assert!(server.dns_names.iter().any(|name| name == "kubernetes.default.svc"));
    }
}
