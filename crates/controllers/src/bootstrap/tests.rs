//! Token signing and expiry.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use setpoint::Object;
use setpoint_token::Left;

use super::signer::signed;
use super::view::content;
use crate::workload::fixtures::at;

fn secret(name: &str, fields: &[(&str, &str)]) -> Object {
    let data: BTreeMap<_, _> = fields.iter().map(|(name, value)| (*name, STANDARD.encode(value))).collect();
    let json = json!({"metadata": {"name": name, "namespace": "kube-system"}, "data": data});
    Object::from_json(json.to_string().into()).unwrap()
}

const GOOD: [(&str, &str); 3] =
    [("token-id", "abcdef"), ("token-secret", "0123456789abcdef"), ("usage-bootstrap-signing", "true")];

#[test]
fn the_config_map_has_a_signature_of_every_valid_token() {
    let data = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let token = secret("bootstrap-token-abcdef", &GOOD);
    let plain = data(&[("kubeconfig", "hello"), ("jws-kubeconfig-gone00", "old")]);
    let with = signed(&plain, std::slice::from_ref(&token), at(0)).unwrap();
    // Computed with another implementation of RFC 7515.
    let expected = "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..MxsnbCjBaYzcbNIFa06F-wuF9LX26rhMlrL4zA1511s";
    assert_eq!(with, data(&[("kubeconfig", "hello"), ("jws-kubeconfig-abcdef", expected)]));
    assert_eq!(signed(&with, &[token], at(0)), None);
    assert_eq!(signed(&data(&[("other", "x")]), &[], at(0)), None);
}

#[test]
fn a_token_signs_if_it_is_complete_and_enabled() {
    let check = |name: &str, fields: &[(&str, &str)], expected: bool| {
        let secret = secret(name, fields);
        assert_eq!(content(&secret).signing_token(name, at(0)).is_some(), expected, "{name} {fields:?}");
    };
    check("bootstrap-token-abcdef", &GOOD, true);
    check("bootstrap-token-fedcba", &GOOD, false);
    check("abcdef", &GOOD, false);
    check("bootstrap-token-abcdef", &GOOD[..2], false);
    check("bootstrap-token-abcdef", &[GOOD[0], GOOD[2]], false);
    let expired = ("expiration", "2020-01-01T00:00:00Z");
    check("bootstrap-token-abcdef", &[GOOD[0], GOOD[1], GOOD[2], expired], false);
}

#[test]
fn a_token_expires_at_its_expiration() {
    let check = |fields: &[(&str, &str)], expected: Left| {
        assert_eq!(content(&secret("t", fields)).left(at(0)), expected);
    };
    check(&[], Left::Forever);
    check(&[("expiration", &at(30).to_string())], Left::For(Duration::from_secs(30)));
    check(&[("expiration", &at(0).to_string())], Left::Nothing);
    check(&[("expiration", "tomorrow")], Left::Nothing);
}
