//! Hand-built messages, as Go clients write them.

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::schema::decode::{Format, decode};
use crate::schema::{FieldValidation, Target};

/// Encodes a field that holds bytes: a string or a message.
fn bytes(number: u64, contents: impl AsRef<[u8]>) -> Vec<u8> {
    let contents = contents.as_ref();
    [&*varint(number << 3 | 2), &*varint(contents.len() as u64), contents].concat()
}

fn number(number: u64, value: i64) -> Vec<u8> {
    [varint(number << 3), varint(value as u64)].concat()
}

fn varint(mut rest: u64) -> Vec<u8> {
    let mut written = Vec::new();
    while rest > 0x7f {
        written.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    written.push(rest as u8);
    written
}

fn message(fields: &[Vec<u8>]) -> Vec<u8> {
    fields.concat()
}

fn envelope(api_version: &str, kind: &str, raw: Vec<u8>) -> Vec<u8> {
    let kind = message(&[bytes(1, api_version), bytes(2, kind)]);
    [b"k8s\0".to_vec(), bytes(1, kind), bytes(2, raw), bytes(3, ""), bytes(4, "")].concat()
}

fn target(name: &str) -> Target {
    Target::built_in(name).expect("the type is in the table")
}

fn read(target: &Target, body: &[u8]) -> Result<Value, String> {
    let decoded = decode(target, Format::Protobuf, body, FieldValidation::Strict);
    decoded.map(|decoded| decoded.object).map_err(|failure| failure.message)
}

#[test]
fn maps_bytes_times_and_labels_decode_as_in_json() {
    let meta = message(&[
        bytes(1, "web"),
        bytes(2, ""),
        bytes(8, message(&[number(1, 1_700_000_000), number(2, 5)])),
        bytes(11, message(&[bytes(1, "app"), bytes(2, "web")])),
    ]);
    let raw = message(&[
        bytes(1, meta),
        bytes(2, message(&[bytes(1, "key"), bytes(2, [0xff, 0x00])])),
        bytes(3, "Opaque"),
        number(5, 0),
    ]);
    let secret = read(&target("io.k8s.api.core.v1.Secret"), &envelope("v1", "Secret", raw)).unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "immutable": false,
        "metadata": {"name": "web", "creationTimestamp": "2023-11-14T22:13:20Z", "labels": {"app": "web"}},
        "data": {"key": "/wA="},
    });
    assert_eq!(secret, expected);
}

#[test]
fn times_in_microseconds_are_read_whatever_their_fraction() {
    let acquired = message(&[number(1, -62_135_596_798), number(2, 0)]);
    let renewed = message(&[number(1, 1_700_000_000), number(2, 120_000_999)]);
    let raw =
        message(&[bytes(1, bytes(1, "l")), bytes(2, message(&[bytes(3, acquired), bytes(4, renewed)]))]);
    let body = envelope("coordination.k8s.io/v1", "Lease", raw);
    let lease = read(&target("io.k8s.api.coordination.v1.Lease"), &body).unwrap();
    assert_eq!(lease["spec"]["acquireTime"], "0001-01-01T00:00:02.000000Z");
    assert_eq!(lease["spec"]["renewTime"], "2023-11-14T22:13:20.120000Z");
}

#[test]
fn inlined_messages_quantities_and_negative_numbers_are_read() {
    let limits = message(&[bytes(1, "cpu"), bytes(2, bytes(1, "250m"))]);
    let handler = bytes(2, message(&[bytes(2, message(&[number(1, 1), number(2, 0), bytes(3, "http")]))]));
    let container = message(&[
        bytes(1, "c"),
        bytes(2, "image"),
        bytes(8, bytes(1, limits)),
        bytes(10, message(&[bytes(1, handler), number(2, 3)])),
    ]);
    let empty_dir = bytes(2, message(&[bytes(1, "Memory")]));
    let spec = message(&[
        bytes(1, message(&[bytes(1, "tmp"), bytes(2, empty_dir)])),
        bytes(2, container),
        number(25, -7),
    ]);
    let raw = message(&[bytes(1, bytes(1, "p")), bytes(2, spec)]);
    let pod = read(&target("io.k8s.api.core.v1.Pod"), &envelope("v1", "Pod", raw)).unwrap();
    assert_eq!(pod["spec"]["volumes"], json!([{"name": "tmp", "emptyDir": {"medium": "Memory"}}]));
    let container = &pod["spec"]["containers"][0];
    assert_eq!(container["resources"], json!({"limits": {"cpu": "250m"}}));
    assert_eq!(
        container["livenessProbe"],
        json!({"httpGet": {"port": "http"}, "initialDelaySeconds": 3}),
        "{container}"
    );
    assert_eq!(pod["spec"]["priority"], -7);
}

#[test]
fn an_unknown_field_number_is_skipped() {
    let raw = message(&[bytes(1, bytes(1, "c")), number(15, 9), bytes(14, "later")]);
    let object = read(&target("io.k8s.api.core.v1.ConfigMap"), &envelope("v1", "ConfigMap", raw)).unwrap();
    assert_eq!(object, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}));
}

#[test]
fn another_kind_than_expected_is_refused_as_in_json() {
    let body = envelope("v1", "Secret", bytes(1, bytes(1, "s")));
    let failure = read(&target("io.k8s.api.core.v1.ConfigMap"), &body).unwrap_err();
    assert!(failure.contains("cannot be handled as a ConfigMap"), "{failure}");
}

#[test]
fn malformed_input_names_the_field() {
    let target = target("io.k8s.api.core.v1.ConfigMap");
    for (body, expected) in [
        (b"{}".to_vec(), "expected prefix [107 56 115 0]"),
        (b"k8s\0\x0a\xff".to_vec(), "unexpected end of the message"),
        (envelope("v1", "ConfigMap", number(1, 3)), "field \"metadata\": a number where bytes were expected"),
        (envelope("v1", "ConfigMap", bytes(1, bytes(1, [0xff]))), "field \"name\": text that is not UTF-8"),
    ] {
        let failure = read(&target, &body).unwrap_err();
        assert!(failure.contains(expected), "{failure}");
    }
}

#[test]
fn unbounded_nesting_is_rejected() {
    const NOT: u64 = 28;
    let schema = (0..400).fold(Vec::new(), |inner, _| bytes(NOT, inner));
    let version = message(&[bytes(1, "v1"), bytes(4, bytes(1, schema))]);
    let raw = bytes(2, bytes(7, version));
    let target = target("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition");
    let body = envelope("apiextensions.k8s.io/v1", "CustomResourceDefinition", raw);
    let failure = read(&target, &body).unwrap_err();
    assert!(failure.contains("nested too deeply"), "{failure}");
}

proptest! {
    #[test]
    fn any_bytes_are_an_object_or_a_failure(raw in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&target("io.k8s.api.core.v1.Pod"), &envelope("v1", "Pod", raw));
    }
}
