//! Tests with real requests and a real CA.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use x509_parser::pem::parse_x509_pem;

use super::authority::CertificateAuthority;
use super::request::Request;
use super::usages::Usages;

/// Generated for these tests and used nowhere else.
const CA_KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIDPUPliRcNdIq7Y5rOHImbqL3UnpZpxpOwmm9kLzIA9K
-----END PRIVATE KEY-----\n";
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBOjCB7aADAgECAhRmQ68LtyGs2WdExxdcTrip2IHLsDAFBgMrZXAwEjEQMA4G
A1UEAwwHdGVzdC1jYTAgFw0yNjExMTUxNzMzMjBaGA8yMTI2MTAyMjE3MzMyMFow
EjEQMA4GA1UEAwwHdGVzdC1jYTAqMAUGAytlcAMhAA58q4VCXkb1saZPevJH7iZ+
3uyTckMGBx1o6HOmHX88o1MwUTAdBgNVHQ4EFgQUUTlvFby4rHHsM6RzeSEDHluT
gvMwHwYDVR0jBBgwFoAUUTlvFby4rHHsM6RzeSEDHluTgvMwDwYDVR0TAQH/BAUw
AwEB/zAFBgMrZXADQQAS4KaOSW49FSy8UbnslRauUIwiQL1sXni8dNkqRpxT0cSk
wgKpXQNi26cJrwWCjd9/aucSG7Cn+OzS0PbrXksE
-----END CERTIFICATE-----\n";
/// From user1 of dev and ops, for a.example and 10.0.0.7.
const REQUEST: &str = "-----BEGIN CERTIFICATE REQUEST-----
MIHZMIGMAgEAMCwxDDAKBgNVBAoMA2RldjEMMAoGA1UECgwDb3BzMQ4wDAYDVQQD
DAV1c2VyMTAqMAUGAytlcAMhAOiCxeM8AwuZ0gZEPlAK97zAypRNsrLz6TH3sbvU
zW5yoC0wKwYJKoZIhvcNAQkOMR4wHDAaBgNVHREEEzARgglhLmV4YW1wbGWHBAoA
AAcwBQYDK2VwA0EA/2BxcfUMZGngrhj6y+sFYailDQJQWkvhFs3OZcynukgKQy7+
UXN3BY1cciBXuJgUMhdmhAOExu0PyoO6N+luCw==
-----END CERTIFICATE REQUEST-----\n";

fn now() -> Timestamp {
    "2027-01-02T03:04:05.678Z".parse().unwrap()
}

fn issue(lifetime: Duration, now: Timestamp) -> Result<String, String> {
    let authority = CertificateAuthority::from_pem(CA, CA_KEY).unwrap();
    let request = Request::parse(REQUEST.as_bytes()).unwrap();
    let usages = Usages::of(&["digital signature", "client auth"]).unwrap();
    authority.issue(&request, &usages, lifetime, now, 7)
}

#[test]
fn a_certificate_has_the_requested_fields_and_verifies() {
    let hour = Duration::from_secs(3600);
    let (_, block) = parse_x509_pem(issue(hour, now()).unwrap().as_bytes()).unwrap();
    let (rest, certificate) = x509_parser::parse_x509_certificate(&block.contents).unwrap();
    assert!(rest.is_empty());
    let organizations: Vec<_> =
        certificate.subject().iter_organization().map(|o| o.as_str().unwrap()).collect();
    assert_eq!(organizations, ["dev", "ops"]);
    let (_, ca) = parse_x509_pem(CA.as_bytes()).unwrap();
    let (_, ca) = x509_parser::parse_x509_certificate(&ca.contents).unwrap();
    certificate.verify_signature(Some(ca.public_key())).unwrap();
    assert_eq!(certificate.issuer(), ca.subject());
    assert!(!certificate.is_ca());
    let usage = certificate.key_usage().unwrap().unwrap().value;
    assert!(usage.digital_signature() && !usage.key_encipherment());
    let extended = certificate.extended_key_usage().unwrap().unwrap().value;
    assert!(extended.client_auth && !extended.server_auth);
    let names = certificate.subject_alternative_name().unwrap().unwrap().value;
    assert_eq!(names.general_names.len(), 2);
    let validity = certificate.validity();
    assert_eq!(validity.not_before.timestamp(), now().as_second() - 300);
    assert_eq!(validity.not_after.timestamp(), now().as_second() + 3600);
    assert_eq!(certificate.tbs_certificate.serial, 7u32.into());
}

#[test]
fn a_certificate_ends_with_its_authority() {
    let ages = Duration::from_secs(200 * 365 * 24 * 3600);
    let (_, block) = parse_x509_pem(issue(ages, now()).unwrap().as_bytes()).unwrap();
    let (_, certificate) = x509_parser::parse_x509_certificate(&block.contents).unwrap();
    assert_eq!(certificate.validity().not_after.timestamp(), 4_948_364_000);
    let late: Timestamp = "2200-01-01T00:00:00Z".parse().unwrap();
    assert!(issue(ages, late).unwrap_err().starts_with("the signer has expired"));
}

#[test]
fn an_invalid_request_is_rejected() {
    let error = Request::parse(b"nonsense").unwrap_err();
    assert_eq!(error, "PEM block type must be CERTIFICATE REQUEST");
    assert_eq!(Request::parse(CA.as_bytes()).unwrap_err(), error);
}

#[test]
fn a_mismatched_key_is_rejected() {
    let other = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n";
    let error = CertificateAuthority::from_pem(CA, other).unwrap_err().to_string();
    assert_eq!(error, "no usable certificate authority: the private key is not that of the certificate");
    assert!(CertificateAuthority::from_pem(CA, CA).is_err());
}

#[test]
fn requests_are_deleted_an_hour_after_an_answer_or_a_day_without_one() {
    let check = |status: serde_json::Value, age_hours: i64, expected: bool| {
        let created = now() - jiff::SignedDuration::from_hours(age_hours);
        let request = json!({"metadata": {"name": "r", "creationTimestamp": created}, "status": status});
        let request = crate::workload::fixtures::cached(request);
        assert_eq!(super::cleaner::is_expired(&request, now()), expected, "{:?}", request.status);
    };
    let condition = |kind: &str, hours: i64| {
        let since = now() - jiff::SignedDuration::from_mins(hours * 60 + 1);
        json!([{"type": kind, "status": "True", "lastUpdateTime": since}])
    };
    check(json!({}), 23, false);
    check(json!({}), 25, true);
    check(json!({"conditions": condition("Denied", 0)}), 25, false);
    check(json!({"conditions": condition("Denied", 1)}), 25, true);
    check(json!({"conditions": condition("Failed", 1)}), 25, true);
    check(json!({"conditions": condition("Approved", 1)}), 25, false);
    check(json!({"conditions": condition("Approved", 1), "certificate": "eA=="}), 2, true);
    check(json!({"conditions": condition("Approved", 0), "certificate": "eA=="}), 2, false);
}
