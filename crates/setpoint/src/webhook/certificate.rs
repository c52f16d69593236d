//! Certificates of the webhook server: a generated CA in a Secret, or files that another program renews.
//!
//! ```text
//!  ca.crt, ca.key            the CA that signs; ten years
//!  next-ca.crt, next-ca.key  its successor, trusted a day before it signs, so that no API server rejects it
//!  old-ca.crt                its predecessor, trusted until it expires
//!  tls.crt, tls.key          the serving certificate; a year, renewed a month before it expires
//! ```
//!
//! Invariant: the serving certificate is signed by a CA that has been in the bundle for at least a day, except right after
//! the first start.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use crate::Key;

/// The source of the webhook server's certificates.
///
/// ```
/// use setpoint::{Key, webhook::Certificates};
/// let own = Certificates::Secret(Key::namespaced("shop", "operator-webhook"));
/// let mounted = Certificates::Files("/etc/webhook".into());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// A CA and a certificate in this Secret, which the leader creates and renews.
    Secret(Key),
    /// `tls.crt` and `tls.key` in this directory, renewed by another program such as cert-manager. `ca.crt`, if there
    /// is one, is the CA bundle for the API server.
    Files(PathBuf),
}

/// Why a certificate cannot be created or used.
#[derive(Debug, thiserror::Error)]
pub(super) enum CertificateError {
    #[error("cannot create a certificate")]
    Create(#[from] rcgen::Error),
    #[error("{0} has no valid PEM")]
    Pem(&'static str),
    #[error("cannot use the certificate")]
    Use(#[from] rustls::Error),
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
}

const AUTHORITY_YEARS: i32 = 10;
const CERTIFICATE_YEARS: i32 = 1;
const RENEW_CERTIFICATE: SignedDuration = SignedDuration::from_hours(30 * 24);
const RENEW_AUTHORITY: SignedDuration = SignedDuration::from_hours(365 * 24);
/// How long a new CA is trusted before it signs: API servers notice a changed bundle within seconds.
const TRUSTED_BEFORE_USE: SignedDuration = SignedDuration::from_hours(24);
/// How much a certificate is backdated at most, for clocks that are behind: to midnight of the day before.
const SLACK: SignedDuration = SignedDuration::from_hours(48);

/// The files of a Secret or a directory, as text.
pub(super) type Material = BTreeMap<String, String>;

/// The keys in a Secret that are managed here. Others are left unchanged.
pub(super) const NAMES: [&str; 7] =
    ["ca.crt", "ca.key", "next-ca.crt", "next-ca.key", "old-ca.crt", "tls.crt", "tls.key"];

/// Returns whether the certificates in a Secret belong to another program, such as cert-manager, which keeps its CA key
/// elsewhere.
pub(super) fn is_of_others(material: &Material) -> bool {
    let has = |name: &str| material.contains_key(name);
    (has("tls.crt") || has("ca.crt")) && !has("ca.key")
}

/// Returns the material for a host if it has to change: it is missing, invalid, about to expire, or for another host.
pub(super) fn renewed(
    current: &Material,
    host: &str,
    now: Timestamp,
) -> Result<Option<Material>, CertificateError> {
    let Some((from, until)) = validity(current, "ca.crt") else { return fresh(current, host, now).map(Some) };
    if from > now || until <= now || pair(current, "ca.crt", "ca.key").is_err() || issuer(current).is_err() {
        return fresh(current, host, now).map(Some);
    }
    let mut next = current.clone();
    if pair(current, "next-ca.crt", "next-ca.key").is_err() {
        next.retain(|name, _| !name.starts_with("next-ca."));
    }
    match validity(&next, "next-ca.crt") {
        Some((created, _)) if now.duration_since(created) >= SLACK + TRUSTED_BEFORE_USE => promote(&mut next),
        None if until.duration_since(now) < RENEW_AUTHORITY => {
            let (certificate, key) = authority(now)?;
            next.extend([("next-ca.crt".into(), certificate), ("next-ca.key".into(), key)]);
        }
        _ => {}
    }
    if validity(&next, "old-ca.crt").is_some_and(|(_, until)| until <= now) {
        next.remove("old-ca.crt");
    }
    let signer_changed = next["ca.crt"] != current["ca.crt"];
    if signer_changed || !is_served_well(&next, host, now) {
        sign(&mut next, host, now)?;
    }
    Ok((next != *current).then_some(next))
}

/// Returns the CA bundle: all CAs that may have signed.
pub(super) fn bundle(material: &Material) -> Option<String> {
    let all = ["ca.crt", "next-ca.crt", "old-ca.crt"].into_iter().filter_map(|name| material.get(name));
    let bundle: String = all.map(|pem| format!("{}\n", pem.trim_end())).collect();
    (!bundle.is_empty()).then_some(bundle)
}

/// Parses the serving certificate.
pub(super) fn certified(material: &Material) -> Result<Arc<CertifiedKey>, CertificateError> {
    pair(material, "tls.crt", "tls.key")
}

/// Parses a certificate and its key, and checks that they match.
fn pair(
    material: &Material,
    certificate: &'static str,
    key: &'static str,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let text = |name: &'static str| material.get(name).ok_or(CertificateError::Pem(name));
    let chain: Vec<_> = CertificateDer::pem_slice_iter(text(certificate)?.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|_| CertificateError::Pem(certificate))?;
    if chain.is_empty() {
        return Err(CertificateError::Pem(certificate));
    }
    let private = PrivateKeyDer::from_pem_slice(text(key)?.as_bytes());
    let key = any_supported_type(&private.map_err(|_| CertificateError::Pem(key))?)?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        // A key without a public half cannot be checked and is accepted.
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::Unknown)) | Ok(()) => {
            Ok(Arc::new(certified))
        }
        Err(error) => Err(error.into()),
    }
}

/// Reads the files of a directory. `ca.crt` may be missing.
pub(super) fn read(directory: &Path) -> Result<Material, CertificateError> {
    let mut material = Material::new();
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        let path = directory.join(name);
        match std::fs::read_to_string(&path) {
            Ok(text) => drop(material.insert(name.into(), text)),
            Err(source) if source.kind() == std::io::ErrorKind::NotFound && name == "ca.crt" => {}
            Err(source) => return Err(CertificateError::Read { path, source }),
        }
    }
    Ok(material)
}

/// Returns a new CA and certificate. A CA that can no longer sign is still trusted: servers may not have reloaded yet.
fn fresh(current: &Material, host: &str, now: Timestamp) -> Result<Material, CertificateError> {
    let (certificate, key) = authority(now)?;
    let mut material: Material = [("ca.crt".into(), certificate), ("ca.key".into(), key)].into();
    if validity(current, "ca.crt").is_some_and(|(_, until)| until > now) {
        material.extend(current.get("ca.crt").map(|previous| ("old-ca.crt".to_owned(), previous.clone())));
    }
    sign(&mut material, host, now)?;
    Ok(material)
}

/// Promotes the next CA, and keeps the previous CA certificate.
fn promote(material: &mut Material) {
    for suffix in ["crt", "key"] {
        let next = material.remove(&format!("next-ca.{suffix}")).unwrap_or_default();
        let previous = material.insert(format!("ca.{suffix}"), next).unwrap_or_default();
        if suffix == "crt" {
            material.insert("old-ca.crt".into(), previous);
        }
    }
}

/// Returns whether the serving certificate can be used, is for the host, and does not expire soon.
fn is_served_well(material: &Material, host: &str, now: Timestamp) -> bool {
    let lasts = validity(material, "tls.crt")
        .is_some_and(|(_, until)| until.duration_since(now) >= RENEW_CERTIFICATE);
    let is_valid = || certified(material).is_ok_and(|certified| is_for(&certified, host));
    lasts && is_valid()
}

fn is_for(certified: &CertifiedKey, host: &str) -> bool {
    let Some(leaf) = certified.cert.first() else { return false };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(leaf) else { return false };
    let names = parsed.subject_alternative_name().ok().flatten();
    let address = host.parse::<std::net::IpAddr>().ok().map(|address| match address {
        std::net::IpAddr::V4(address) => address.octets().to_vec(),
        std::net::IpAddr::V6(address) => address.octets().to_vec(),
    });
    names.is_some_and(|names| {
        names.value.general_names.iter().any(|name| match name {
            x509_parser::extensions::GeneralName::DNSName(name) => *name == host,
            x509_parser::extensions::GeneralName::IPAddress(bytes) => Some(*bytes) == address.as_deref(),
            _ => false,
        })
    })
}

/// Returns the validity period of a certificate.
fn validity(material: &Material, name: &str) -> Option<(Timestamp, Timestamp)> {
    let der = CertificateDer::from_pem_slice(material.get(name)?.as_bytes()).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&der).ok()?;
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    let validity = parsed.validity();
    Some((time(validity.not_before.timestamp())?, time(validity.not_after.timestamp())?))
}

fn issuer(material: &Material) -> Result<Issuer<'static, KeyPair>, CertificateError> {
    let text = |name: &'static str| material.get(name).ok_or(CertificateError::Pem(name));
    Ok(Issuer::from_ca_cert_pem(text("ca.crt")?, KeyPair::from_pem(text("ca.key")?)?)?)
}

fn authority(now: Timestamp) -> Result<(String, String), CertificateError> {
    let key = KeyPair::generate()?;
    // Each CA has a different name, so that they cannot be confused.
    let mut params = params(&format!("webhook-ca@{}", now.as_second()), Vec::new(), now, AUTHORITY_YEARS)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

/// Replaces the serving certificate.
fn sign(material: &mut Material, host: &str, now: Timestamp) -> Result<(), CertificateError> {
    let key = KeyPair::generate()?;
    let mut params = params("webhook", vec![host.to_owned()], now, CERTIFICATE_YEARS)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer(material)?)?.pem();
    material.extend([("tls.crt".into(), certificate), ("tls.key".into(), key.serialize_pem())]);
    Ok(())
}

fn params(
    name: &str,
    hosts: Vec<String>,
    now: Timestamp,
    years: i32,
) -> Result<CertificateParams, CertificateError> {
    let mut params = CertificateParams::new(hosts)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let today = now.to_zoned(TimeZone::UTC).date();
    let midnight = |date: jiff::civil::Date| {
        date_time_ymd(i32::from(date.year()), date.month().unsigned_abs(), date.day().unsigned_abs())
    };
    params.not_before = midnight(today.yesterday().unwrap_or(today));
    params.not_after = midnight(today.checked_add(years.years()).unwrap_or(today));
    Ok(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().expect("a time")
    }

    fn renew(material: &Material, now: &str) -> Material {
        renewed(material, "operator.shop.svc", at(now)).expect("created").unwrap_or_else(|| material.clone())
    }

    #[test]
    fn certificates_are_renewed_before_they_expire_and_not_earlier() {
        let first = renew(&Material::new(), "2025-01-01T12:00:00Z");
        certified(&first).expect("it can be served");
        assert_eq!(renew(&first, "2025-11-30T12:00:00Z"), first);
        let second = renew(&first, "2025-12-15T12:00:00Z");
        assert_eq!(second["ca.crt"], first["ca.crt"]);
        assert_ne!(second["tls.crt"], first["tls.crt"]);
        let moved = renewed(&first, "other.shop.svc", at("2025-01-02T12:00:00Z")).expect("created");
        assert_ne!(moved.expect("another host")["tls.crt"], first["tls.crt"]);
    }

    #[test]
    fn material_that_cannot_be_used_is_replaced() {
        let first = renew(&Material::new(), "2025-01-01T12:00:00Z");
        let other = renew(&Material::new(), "2025-01-02T12:00:00Z");
        let mixed: Material = first
            .iter()
            .map(|(name, text)| (name.clone(), text.clone()))
            .chain([("ca.key".to_owned(), other["ca.key"].clone())])
            .collect();
        let repaired = renew(&mixed, "2025-01-03T12:00:00Z");
        assert_ne!(repaired["ca.crt"], first["ca.crt"], "the key is that of another CA");
        assert_eq!(repaired["old-ca.crt"], first["ca.crt"], "servers may still use what it signed");
        let mut announced = renew(&first, "2034-06-01T12:00:00Z");
        announced.insert("next-ca.key".into(), "none".into());
        let repaired = renew(&announced, "2034-06-02T12:00:00Z");
        assert_ne!(repaired["next-ca.crt"], announced["next-ca.crt"]);
    }

    #[test]
    fn certificates_of_others_are_recognized() {
        let own = renew(&Material::new(), "2025-01-01T12:00:00Z");
        let without_key = own.iter().filter(|(name, _)| *name != "ca.key");
        let foreign: Material = without_key.map(|(name, text)| (name.clone(), text.clone())).collect();
        assert!(is_of_others(&foreign) && !is_of_others(&own) && !is_of_others(&Material::new()));
    }

    #[test]
    fn a_new_authority_is_trusted_before_it_signs_and_the_old_one_until_it_expires() {
        let first = renew(&Material::new(), "2025-01-01T12:00:00Z");
        let announced = renew(&first, "2034-06-01T12:00:00Z");
        assert_eq!(announced["ca.crt"], first["ca.crt"]);
        assert!(bundle(&announced).expect("a bundle").contains(announced["next-ca.crt"].trim_end()));
        let waiting = renew(&announced, "2034-06-02T11:00:00Z");
        assert_eq!(waiting, announced);
        let promoted = renew(&announced, "2034-06-03T12:00:00Z");
        assert_eq!(promoted["ca.crt"], announced["next-ca.crt"]);
        assert_eq!(promoted["old-ca.crt"], first["ca.crt"]);
        assert_ne!(promoted["tls.crt"], announced["tls.crt"]);
        certified(&promoted).expect("it can be served");
        let later = renew(&promoted, "2035-02-01T12:00:00Z");
        assert!(!later.contains_key("old-ca.crt"));
    }

    #[test]
    fn invalid_material_is_replaced() {
        let first = renew(&Material::new(), "2025-01-01T12:00:00Z");
        for name in ["ca.crt", "ca.key", "tls.crt", "tls.key"] {
            let mut broken = first.clone();
            broken.insert(name.into(), "garbage".into());
            let healed = renew(&broken, "2025-01-02T12:00:00Z");
            certified(&healed).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        let mut mixed = first.clone();
        mixed.insert("tls.key".into(), renew(&Material::new(), "2025-01-01T12:00:00Z")["tls.key"].clone());
        certified(&renew(&mixed, "2025-01-02T12:00:00Z")).expect("a key of another certificate is replaced");
    }
}
