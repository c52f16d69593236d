//! Keys and bytes of stored objects.

use serde_json::{Value, json};
use setpoint_store::etcd::Codec;
use setpoint_store::{Key, Record, Resource};

use super::{StorageCodec, StorageMediaType};
use crate::apply::ManagedFields;
use crate::json::Json;
use crate::registry::Registry;
use crate::schema::protobuf::{is_marked, stated};
use crate::{Features, kinds};

fn codec_of(media_type: StorageMediaType) -> StorageCodec {
    StorageCodec::new(kinds::with(&Features::enabled_by(|_| true)), media_type)
        .expect("the schemas are known")
}

fn codec() -> StorageCodec {
    codec_of(StorageMediaType::Protobuf)
}

fn key(resource: &str, path: &str) -> Key {
    Resource::new(resource).key(path)
}

#[test]
fn objects_are_where_v1_34_stores_them() {
    let codec = codec();
    for (resource, path, stored) in [
        ("pods", "ns/a", "pods/ns/a"),
        ("namespaces", "a", "namespaces/a"),
        ("services", "ns/a", "services/specs/ns/a"),
        ("endpoints", "ns/a", "services/endpoints/ns/a"),
        ("nodes", "a", "minions/a"),
        ("replicationcontrollers", "ns/a", "controllers/ns/a"),
        ("events", "ns/a", "events/ns/a"),
        ("apps/deployments", "ns/a", "deployments/ns/a"),
        ("apps/controllerrevisions", "ns/a", "controllerrevisions/ns/a"),
        ("autoscaling/horizontalpodautoscalers", "ns/a", "horizontalpodautoscalers/ns/a"),
        ("batch/cronjobs", "ns/a", "cronjobs/ns/a"),
        ("certificates.k8s.io/certificatesigningrequests", "a", "certificatesigningrequests/a"),
        ("coordination.k8s.io/leases", "ns/a", "leases/ns/a"),
        ("discovery.k8s.io/endpointslices", "ns/a", "endpointslices/ns/a"),
        ("networking.k8s.io/ingresses", "ns/a", "ingress/ns/a"),
        ("networking.k8s.io/ingressclasses", "a", "ingressclasses/a"),
        ("networking.k8s.io/ipaddresses", "10.0.0.1", "ipaddresses/10.0.0.1"),
        ("policy/poddisruptionbudgets", "ns/a", "poddisruptionbudgets/ns/a"),
        ("flowcontrol.apiserver.k8s.io/flowschemas", "a", "flowschemas/a"),
        ("storage.k8s.io/csistoragecapacities", "ns/a", "csistoragecapacities/ns/a"),
        ("rbac.authorization.k8s.io/clusterroles", "system:a", "clusterroles/system:a"),
        (
            "admissionregistration.k8s.io/mutatingwebhookconfigurations",
            "a",
            "mutatingwebhookconfigurations/a",
        ),
        ("resource.k8s.io/resourceclaims", "ns/a", "resourceclaims/ns/a"),
        ("internal.apiserver.k8s.io/storageversions", "a", "storageversions/a"),
        (
            "apiextensions.k8s.io/customresourcedefinitions",
            "a.b.c",
            "apiextensions.k8s.io/customresourcedefinitions/a.b.c",
        ),
        ("apiregistration.k8s.io/apiservices", "v1.a.b", "apiregistration.k8s.io/apiservices/v1.a.b"),
        ("ranges", "servicenodeports", "ranges/servicenodeports"),
        ("masterleases", "10.0.0.1", "masterleases/10.0.0.1"),
        ("bears.example/pandas", "ns/a", "bears.example/pandas/ns/a"),
        ("bears.example/caves", "a", "bears.example/caves/a"),
    ] {
        let key = key(resource, path);
        assert_eq!(codec.path(&key), stored);
        assert_eq!(codec.key(stored), Some(key));
    }
}

#[test]
fn other_keys_are_unknown() {
    let codec = codec();
    for path in [
        "",
        "pods",
        "pods/",
        "pods/a",
        "pods/ns/a/b",
        "namespaces/ns/a",
        "ranges/serviceips",
        "ranges/servicenodeports/a",
        "masterleases",
        "masterleases/",
        "masterleases/a/b",
        "peerserverleases/a",
        "services/a/b/c",
        "services/specs/ns",
        "bears.example/pandas",
        "bears.example/pandas/",
        "bears.example/pandas/a/b/c",
        "bears.example//a",
    ] {
        assert_eq!(codec.key(path), None, "{path}");
    }
}

/// Returns an object of every built-in kind that can be stored, with managed fields.
fn objects() -> Vec<(Key, Value)> {
    let registry =
        Registry::new(kinds::with(&Features::enabled_by(|_| true))).expect("the schemas are known");
    let stored = registry.all().filter(|served| served.kind.conversion.is_none());
    let stored =
        stored.filter(|served| !matches!(served.kind.plural.as_str(), "bindings" | "componentstatuses"));
    let object = |served: &std::sync::Arc<crate::registry::Served>| {
        let mut metadata = json!({
            "name": "a",
            "uid": "6b8f2a5e-0000-4000-8000-000000000000",
            "creationTimestamp": "2025-01-01T00:00:00Z",
            "labels": {"app": "web"},
            "annotations": {"text": "\u{fc}\n"},
            "managedFields": [{
                "manager": "kubectl",
                "operation": "Update",
                "apiVersion": served.kind.api_version(),
                "time": "2025-01-01T00:00:00Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
            }],
        });
        if served.kind.is_namespaced() {
            metadata["namespace"] = "ns".into();
        }
        let mut object = json!({"metadata": metadata});
        served.name_kind(&mut object);
        served.kind.strategy.default(&mut object);
        let (object, key) = (object, served.key(Some("ns"), "a"));
        let decoded = served.target.decode_value(object, crate::schema::FieldValidation::Ignore);
        (key, decoded.expect("it matches its schema").object)
    };
    stored.map(object).collect()
}

/// Stores an object and reads it back.
fn stored(codec: &StorageCodec, key: &Key, object: &Value) -> (bytes::Bytes, Record, bool) {
    let registry =
        Registry::new(kinds::with(&Features::enabled_by(|_| true))).expect("the schemas are known");
    let served =
        registry.all().find(|served| served.resource == key.resource).expect("it is built in").clone();
    let mut bare = object.clone();
    let fields = ManagedFields::take_from(&mut bare);
    let bytes = codec.encode(key, &served.encode(&bare, &fields)).expect("it can be stored");
    let decoded = codec.decode(key, &bytes).unwrap_or_else(|why| panic!("{key}: {why}"));
    let record = Record::new(key.clone(), decoded.payload, 7, 9, None);
    (bytes, record, decoded.is_current)
}

fn whole(record: &Record) -> Value {
    let mut object: Value = serde_json::from_slice(&record.whole()).expect("it is JSON");
    assert_eq!(object.at("metadata").text("resourceVersion"), "9");
    object["metadata"].as_object_mut().expect("it is an object").remove("resourceVersion");
    object
}

#[test]
fn every_kind_is_read_as_it_was_stored() {
    for media_type in [StorageMediaType::Protobuf, StorageMediaType::Json] {
        let codec = codec_of(media_type);
        for (key, object) in objects() {
            let (bytes, record, is_current) = stored(&codec, &key, &object);
            assert_eq!(whole(&record), object, "{key}");
            assert!(is_current, "{key}");
            let is_json = media_type == StorageMediaType::Json
                || key.resource.as_str().starts_with("apiextensions.k8s.io/")
                || key.resource.as_str().starts_with("apiregistration.k8s.io/");
            assert_eq!(is_marked(&bytes), !is_json, "{key}");
            let other = match media_type {
                StorageMediaType::Protobuf => StorageMediaType::Json,
                StorageMediaType::Json => StorageMediaType::Protobuf,
            };
            let in_other = codec_of(other).decode(&key, &bytes).expect("both forms are read");
            assert_eq!(in_other.is_current, key.resource.as_str().starts_with("api"), "{key}");
        }
    }
}

#[test]
fn kinds_are_stored_in_the_versions_of_v1_34() {
    let codec = codec();
    let versions = objects().into_iter().map(|(key, object)| {
        let (bytes, ..) = stored(&codec, &key, &object);
        let version = match is_marked(&bytes) {
            true => stated(&bytes).expect("it has an envelope").0,
            false => {
                let document: Value = serde_json::from_slice(&bytes).expect("it is JSON");
                document.text("apiVersion").to_owned()
            }
        };
        (key.resource.as_str().to_owned(), version)
    });
    let unusual: Vec<_> = versions.filter(|(_, version)| !version.ends_with("v1")).collect();
    let unusual: Vec<_> = unusual.iter().map(|(resource, version)| (&**resource, &**version)).collect();
    assert_eq!(
        unusual,
        [
            ("apiextensions.k8s.io/customresourcedefinitions", "apiextensions.k8s.io/v1beta1"),
            ("autoscaling/horizontalpodautoscalers", "autoscaling/v2"),
            ("certificates.k8s.io/clustertrustbundles", "certificates.k8s.io/v1beta1"),
            ("certificates.k8s.io/podcertificaterequests", "certificates.k8s.io/v1alpha1"),
            ("internal.apiserver.k8s.io/storageversions", "internal.apiserver.k8s.io/v1alpha1"),
            ("resource.k8s.io/deviceclasses", "resource.k8s.io/v1beta2"),
            ("resource.k8s.io/resourceclaims", "resource.k8s.io/v1beta2"),
            ("resource.k8s.io/resourceclaimtemplates", "resource.k8s.io/v1beta2"),
            ("resource.k8s.io/resourceslices", "resource.k8s.io/v1beta2"),
            ("resource.k8s.io/devicetaintrules", "resource.k8s.io/v1alpha3"),
            ("storage.k8s.io/volumeattributesclasses", "storage.k8s.io/v1beta1"),
            ("storagemigration.k8s.io/storageversionmigrations", "storagemigration.k8s.io/v1alpha1"),
        ]
    );
}

fn definition() -> Value {
    let version = |name: &str, storage: bool| {
        json!({
            "name": name,
            "served": true,
            "storage": storage,
            "schema": {"openAPIV3Schema": {"type": "object"}},
            "subresources": {"status": {}},
            "additionalPrinterColumns": [{"name": "Size", "type": "string", "jsonPath": format!(".{name}")}],
        })
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "pandas.bears.example", "creationTimestamp": "2025-01-01T00:00:00Z"},
        "spec": {
            "group": "bears.example",
            "names": {"plural": "pandas", "singular": "panda", "kind": "Panda", "listKind": "PandaList"},
            "scope": "Namespaced",
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {
                    "clientConfig": {"url": "https://bears.example"},
                    "conversionReviewVersions": ["v1"],
                },
            },
        },
        "status": {
            "conditions": null,
            "acceptedNames": {"plural": "", "kind": ""},
            "storedVersions": ["v1"],
        },
    })
}

#[test]
fn definitions_are_stored_in_v1beta1() {
    let key = key("apiextensions.k8s.io/customresourcedefinitions", "pandas.bears.example");
    let (bytes, record, is_current) = stored(&codec(), &key, &definition());
    let spec: Value = serde_json::from_slice(&bytes).expect("it is JSON");
    let spec = spec.at("spec");
    assert_eq!(spec.text("version"), "v1");
    assert_eq!(spec.at("validation"), &json!({"openAPIV3Schema": {"type": "object"}}));
    assert_eq!(spec.at("subresources"), &json!({"status": {}}));
    assert_eq!(spec.at("preserveUnknownFields"), false);
    assert_eq!(
        spec.at("versions")[1],
        json!({
            "name": "v2", "served": true, "storage": false,
            "additionalPrinterColumns": [{"name": "Size", "type": "string", "JSONPath": ".v2"}],
        })
    );
    assert_eq!(
        spec.at("conversion"),
        &json!({
            "strategy": "Webhook",
            "webhookClientConfig": {"url": "https://bears.example"},
            "conversionReviewVersions": ["v1"],
        })
    );
    assert_eq!(whole(&record).at("spec"), definition().at("spec"));
    assert!(is_current);
}

#[test]
fn a_custom_resource_is_stored_as_json() {
    let key = key("bears.example/pandas", "ns/a");
    let text = concat!(
        r#"{"apiVersion":"bears.example/v1","kind":"Panda","metadata":{"creationTimestamp":"2025-01-01T00:00:00Z","#,
        r#""generation":1,"managedFields":[{"apiVersion":"bears.example/v1","fieldsType":"FieldsV1","#,
        r#""fieldsV1":{"f:spec":{}},"manager":"m","operation":"Update","time":"2025-01-01T00:00:00Z"}],"#,
        r#""name":"a","namespace":"ns","uid":"u"},"spec":{"size":3}}"#,
        "\n"
    );
    let decoded = codec().decode(&key, text.as_bytes()).expect("it is a custom resource");
    let record = Record::new(key.clone(), decoded.payload, 7, 9, None);
    let shown = String::from_utf8_lossy(&record.whole()).into_owned();
    assert!(shown.contains(r#""namespace":"ns","resourceVersion":"9","uid":"u""#), "{shown}");
    let again = codec().encode(&key, &record.payload()).expect("it can be stored");
    assert_eq!(String::from_utf8_lossy(&again), text);
}

#[test]
fn what_is_not_understood_is_an_error() {
    let codec = codec();
    for (resource, stored, expected) in [
        ("pods", &b"k8s:enc:aescbc:v1:x"[..], "it is neither protobuf nor JSON"),
        (
            "pods",
            br#"{"kind":"Pod","apiVersion":"v2"}"#,
            "it is v2 Pod, which this server cannot read as v1 Pod",
        ),
        ("pods", br#"{"kind":"Node","apiVersion":"v1"}"#, "it is v1 Node, which"),
        (
            "policy/poddisruptionbudgets",
            br#"{"kind":"PodDisruptionBudget","apiVersion":"policy/v1beta1"}"#,
            "it is policy/v1beta1 PodDisruptionBudget, which",
        ),
        ("pods", b"k8s\0", "it is  , which"),
        ("bears.example/pandas", b"k8s\0", "it is not JSON"),
        ("bears.example/pandas", b"{}", "it states no kind and version"),
    ] {
        let error = codec.decode(&key(resource, "ns/a"), stored).err().expect("it is an error");
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn the_records_of_the_servers_themselves_are_those_of_v1_34() {
    let key = super::node_ports();
    // Written by kube-apiserver v1.34: empty metadata takes ten fields.
    let metadata = b"\x0a\x00\x12\x00\x1a\x00\x22\x00\x2a\x00\x32\x00\x38\x00\x42\x00";
    let message = [&b"\x0a\x10"[..], metadata, b"\x12\x0b30000-32767\x1a\x02\x01\x80"].concat();
    let theirs = crate::schema::protobuf::write::envelope("v1", "RangeAllocation", &message);
    let allocation = super::RangeAllocation { range: "30000-32767".into(), bitmap: vec![1, 0x80] };
    for media_type in [StorageMediaType::Protobuf, StorageMediaType::Json] {
        let codec = codec_of(media_type);
        let decoded = codec.decode(&key, &theirs).unwrap();
        assert_eq!(decoded.is_current, media_type == StorageMediaType::Protobuf);
        assert_eq!(super::RangeAllocation::read(&decoded.payload.bytes), Ok(allocation.clone()));
        let ours = codec.encode(&key, &decoded.payload).unwrap();
        assert_eq!(is_marked(&ours), media_type == StorageMediaType::Protobuf);
        let again = codec.decode(&key, &ours).unwrap();
        assert!(again.is_current && again.payload.bytes == decoded.payload.bytes);
        for stored in [&b""[..], b"{}", b"k8s\0\x0a", &theirs[..20]] {
            assert!(codec.decode(&key, stored).is_err(), "{stored:?}");
        }
    }
    let codec = codec();
    let lease = Resource::new(super::MASTER_LEASES).key("10.0.0.1");
    let endpoints = br#"{"kind":"Endpoints","apiVersion":"v1","metadata":{"generation":3},"subsets":[{"addresses":[{"ip":"10.0.0.1"}]}]}"#;
    let decoded = codec.decode(&lease, endpoints).unwrap();
    let stored = codec.encode(&lease, &decoded.payload).unwrap();
    assert_eq!(stated(&stored), Ok(("v1".to_owned(), "Endpoints".to_owned())));
    assert_eq!(codec.decode(&lease, &stored).unwrap().payload.bytes, decoded.payload.bytes);
}
