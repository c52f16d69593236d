//! Checks of a server's certificate by itself, with the messages of Go's `crypto/x509`.

use std::net::IpAddr;

use jiff::Timestamp;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::x509::AttributeTypeAndValue;

/// A certificate with this many names is not listed name by name.
const MAX_LISTED: usize = 100;

pub(crate) fn parse(der: &[u8]) -> Option<X509Certificate<'_>> {
    X509Certificate::from_der(der).ok().map(|(_, parsed)| parsed)
}

/// Checks that a certificate is valid at a time, in seconds since the epoch.
pub(crate) fn check_validity(certificate: &X509Certificate<'_>, now: i64) -> Result<(), String> {
    let validity = certificate.validity();
    let (start, end) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let (relation, limit) = match now {
        _ if now < start => ("before", start),
        _ if now > end => ("after", end),
        _ => return Ok(()),
    };
    Err(format!(
        "x509: certificate has expired or is not yet valid: current time {} is {relation} {}",
        rfc3339(now),
        rfc3339(limit)
    ))
}

fn rfc3339(seconds: i64) -> String {
    Timestamp::from_second(seconds).map_or_else(|_| seconds.to_string(), |time| time.to_string())
}

/// Checks that a certificate which needs no issuer may be used by a server.
pub(crate) fn check_usage(certificate: &X509Certificate<'_>) -> Result<(), String> {
    let usage = certificate.extended_key_usage().map_err(|_| MALFORMED)?;
    match usage.is_some_and(|usage| !usage.value.server_auth && !usage.value.any) {
        true => Err(INCOMPATIBLE_USAGE.into()),
        false => Ok(()),
    }
}

pub(crate) const MALFORMED: &str = "x509: malformed certificate";
pub(crate) const INCOMPATIBLE_USAGE: &str = "x509: certificate specifies an incompatible key usage";

/// Checks that a certificate is valid for a host.
pub(crate) fn check_host(
    der: &CertificateDer<'_>,
    certificate: &X509Certificate<'_>,
    host: &ServerName<'_>,
) -> Result<(), String> {
    let parsed = ParsedCertificate::try_from(der).map_err(|_| MALFORMED)?;
    verify_server_name(&parsed, host).map_err(|_| mismatch(certificate, &host.to_str()))
}

/// Describes why a certificate is not valid for a host.
fn mismatch(certificate: &X509Certificate<'_>, host: &str) -> String {
    let alternatives = certificate.subject_alternative_name().ok().flatten();
    if alternatives.is_none() && common_name(certificate).is_some_and(|name| matches(name, host)) {
        return "x509: certificate relies on legacy Common Name field, use SANs instead".into();
    }
    let names = alternatives.map(|names| &*names.value.general_names).unwrap_or_default();
    let (valid, what): (Vec<String>, _) = match host.parse::<IpAddr>() {
        Ok(_) => (names.iter().filter_map(address).collect(), "IP SANs"),
        Err(_) => (names.iter().filter_map(dns_name).collect(), "names"),
    };
    match valid.len() {
        0 if what == "IP SANs" => {
            format!("x509: cannot validate certificate for {host} because it doesn't contain any IP SANs")
        }
        0 => format!("x509: certificate is not valid for any names, but wanted to match {host}"),
        count @ MAX_LISTED.. => {
            format!("x509: certificate is valid for {count} {what}, but none matched {host}")
        }
        _ => format!("x509: certificate is valid for {}, not {host}", valid.join(", ")),
    }
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    }
}

fn address(name: &GeneralName<'_>) -> Option<String> {
    let GeneralName::IPAddress(bytes) = name else { return None };
    let four = || <[u8; 4]>::try_from(*bytes).ok().map(IpAddr::from);
    let sixteen = || <[u8; 16]>::try_from(*bytes).ok().map(IpAddr::from);
    four().or_else(sixteen).map(|address| address.to_canonical().to_string())
}

/// Whether a name that may start with a wildcard label matches a host.
fn matches(pattern: &str, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    match (pattern.strip_prefix("*."), host.split_once('.')) {
        (Some(rest), Some((_, domain))) => rest.eq_ignore_ascii_case(domain),
        _ => {
            !pattern.is_empty()
                && (pattern == "*" && !host.contains('.') || pattern.eq_ignore_ascii_case(host))
        }
    }
}

/// Returns the common name of the subject: the last one, as in Go.
pub(crate) fn common_name<'a>(certificate: &'a X509Certificate<'_>) -> Option<&'a str> {
    certificate.subject().iter_common_name().filter_map(text).last()
}

pub(crate) fn text<'a>(attribute: &'a AttributeTypeAndValue<'_>) -> Option<&'a str> {
    attribute.as_str().ok()
}
