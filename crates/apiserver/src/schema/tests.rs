//! Bodies and their decoded objects.

use serde_json::{Value, json};

use super::decode::{decode, normalize};
use super::{FieldValidation, Format, Schema, Target};

fn target(kind: &str) -> Target {
    let name = match kind {
        "Deployment" => "io.k8s.api.apps.v1.Deployment",
        "DeleteOptions" => "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
        "Lease" => "io.k8s.api.coordination.v1.Lease",
        "ControllerRevision" => "io.k8s.api.apps.v1.ControllerRevision",
        "ValidatingWebhookConfiguration" => {
            "io.k8s.api.admissionregistration.v1.ValidatingWebhookConfiguration"
        }
        core => &format!("io.k8s.api.core.v1.{core}"),
    };
    Target::built_in(name).unwrap()
}

fn read(kind: &str, body: &str) -> Value {
    decode(&target(kind), Format::Json, body.as_bytes(), FieldValidation::Warn).unwrap().object
}

#[track_caller]
fn check_failure(kind: &str, body: &str, expected: &str) {
    let failure = decode(&target(kind), Format::Json, body.as_bytes(), FieldValidation::Strict).unwrap_err();
    assert_eq!(failure.message, expected);
}

#[test]
fn a_document_takes_the_form_it_is_stored_in() {
    let pod = read(
        "Pod",
        r#"{"metadata":{"name":"a","labels":{},"annotations":null,"creationTimestamp":null,"finalizers":[],
             "deletionTimestamp":"2025-01-01T01:00:00+01:00"},
            "spec":{"hostNetwork":false,"nodeName":"","priority":0,"hostname":null,"volumes":[{"name":"v","emptyDir":{}}],
              "containers":[{"name":"c","env":[{"name":"E","value":""}],"resources":{"limits":{"cpu":1,"memory":"1Gi"}},
                "ports":[{"containerPort":80,"hostPort":0}],"command":[],"securityContext":{}}]}}"#,
    );
    assert_eq!(
        pod,
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "a", "deletionTimestamp": "2025-01-01T00:00:00Z"},
            "spec": {
                "priority": 0,
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{
                    "name": "c", "env": [{"name": "E"}], "securityContext": {},
                    "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "ports": [{"containerPort": 80}],
                }],
            },
            "status": {},
        })
    );
}

#[test]
fn required_output_fields_are_filled_in() {
    assert_eq!(
        read("Deployment", "{}"),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {},
            "spec": {
                "selector": null, "strategy": {},
                "template": {"metadata": {}, "spec": {"containers": null}},
            },
            "status": {},
        })
    );
    assert_eq!(
        read("Service", "null"),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {}, "spec": {}, "status": {"loadBalancer": {}}})
    );
    assert_eq!(read("ControllerRevision", "{}")["data"], Value::Null);
    let events = read("Event", r#"{"metadata":{"name":"e"}}"#);
    assert_eq!(events["firstTimestamp"], Value::Null);
    assert!(events.as_object().unwrap().contains_key("firstTimestamp"));
}

#[test]
fn type_errors_name_the_field() {
    let check = |kind: &str, body: &str, why: &str| {
        let version = target(kind).version;
        check_failure(
            kind,
            body,
            &format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"),
        );
    };
    check(
        "ConfigMap",
        r#"{"metadata":"x"}"#,
        "json: cannot unmarshal string into Go struct field ConfigMap.metadata of type v1.ObjectMeta",
    );
    check(
        "ConfigMap",
        r#"{"metadata":{"labels":[]}}"#,
        "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
    );
    check(
        "ConfigMap",
        r#"{"data":{"a":5}}"#,
        "json: cannot unmarshal number into Go struct field ConfigMap.data of type string",
    );
    check(
        "Pod",
        r#"{"spec":{"containers":{"name":"x"}}}"#,
        "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container",
    );
    check(
        "Pod",
        r#"{"spec":{"containers":[{"imagePullPolicy":true}]}}"#,
        "json: cannot unmarshal bool into Go struct field Container.spec.containers.imagePullPolicy of type v1.PullPolicy",
    );
    check(
        "Pod",
        r#"{"spec":{"overhead":[]}}"#,
        "json: cannot unmarshal array into Go struct field PodSpec.spec.overhead of type v1.ResourceList",
    );
    for (value, found) in [
        ("\"x\"", "string"),
        ("1.5", "number 1.5"),
        ("2.0", "number 2.0"),
        ("3000000000", "number 3000000000"),
    ] {
        check(
            "Deployment",
            &format!(r#"{{"spec":{{"replicas":{value}}}}}"#),
            &format!(
                "json: cannot unmarshal {found} into Go struct field DeploymentSpec.spec.replicas of type int32"
            ),
        );
    }
    check(
        "Service",
        r#"{"spec":{"ports":[{"targetPort":true}]}}"#,
        "json: cannot unmarshal bool into Go struct field ServicePort.spec.ports.targetPort of type int32",
    );
    check("Secret", r#"{"data":{"k":"***"}}"#, "illegal base64 data at input byte 0");
    check(
        "ResourceQuota",
        r#"{"spec":{"hard":{"pods":"1..2"}}}"#,
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
    );
    check(
        "ConfigMap",
        r#"{"metadata":{"creationTimestamp":"yesterday"}}"#,
        "parsing time \"yesterday\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"yesterday\" as \"2006\"",
    );
}

#[test]
fn input_without_an_object_is_unrecognized() {
    let check = |body: &str, why: &str, shown: &str| {
        check_failure(
            "ConfigMap",
            body,
            &format!(
                "the object provided is unrecognized (must be of type ConfigMap): couldn't get version/kind; json parse error: {why} ({shown})"
            ),
        );
    };
    check(r#"{"apiVersion":"v1","#, "unexpected end of JSON input", r#"{"apiVersion":"v1","#);
    check("", "unexpected end of JSON input", "<empty>");
    check(
        "[]",
        "json: cannot unmarshal array into Go value of type struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }",
        "5b5d",
    );
    check(
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{}} xx"#,
        "invalid character 'x' after top-level value",
        r#"{"apiVersion":"v1","kind":"Con ..."#,
    );
    check(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n",
        "invalid character 'a' looking for beginning of value",
        "61706956657273696f6e3a2076310a6b696e643a20436f6e6669674d6170 ...",
    );
    let deep = format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","x":{}"#, "[".repeat(20_000));
    check(&deep, "invalid character '[' exceeded max depth", r#"{"apiVersion":"v1","kind":"Con ..."#);
}

#[test]
fn other_kinds_are_refused() {
    check_failure(
        "ConfigMap",
        r#"{"apiVersion":"v1","kind":"Nope"}"#,
        "Nope in version \"v1\" cannot be handled as a ConfigMap: no kind \"Nope\" is registered for version \"v1\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
    );
    check_failure(
        "ConfigMap",
        r#"{"apiVersion":"v2","kind":"ConfigMap"}"#,
        "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/api/legacyscheme/scheme.go:30\"",
    );
    check_failure(
        "ConfigMap",
        r#"{"apiVersion":"v1","kind":"ConfigMapList","items":[]}"#,
        "ConfigMapList in version \"v1\" cannot be handled as a ConfigMap: converting (v1.ConfigMapList) to (core.ConfigMap): unknown conversion",
    );
    check_failure(
        "ConfigMap",
        r#"{"apiVersion":"v1","kind":"Secret","data":{"k":"v"}}"#,
        "Secret in version \"v1\" cannot be handled as a ConfigMap: illegal base64 data at input byte 0",
    );
    check_failure(
        "ValidatingWebhookConfiguration",
        r#"{"apiVersion":"admissionregistration.k8s.io/v1beta1","kind":"ValidatingWebhookConfiguration"}"#,
        "the API version in the data (admissionregistration.k8s.io/v1beta1) does not match the expected API version (admissionregistration.k8s.io/v1)",
    );
    check_failure(
        "Deployment",
        r#"{"apiVersion":"extensions/v1beta1","kind":"Deployment"}"#,
        "the API version in the data (extensions/v1beta1) does not match the expected API version (apps/v1)",
    );
    check_failure(
        "Deployment",
        r#"{"apiVersion":"batch/v1beta1","kind":"CronJobList"}"#,
        "CronJobList in version \"v1beta1\" cannot be handled as a Deployment: converting (v1beta1.CronJobList) to (apps.Deployment): unknown conversion",
    );
    check_failure(
        "Event",
        r#"{"apiVersion":"events.k8s.io/v1","kind":"Event"}"#,
        "the API version in the data (events.k8s.io/v1) does not match the expected API version (v1)",
    );
}

#[test]
fn options_are_the_same_kind_in_every_group() {
    for version in ["v1", "apps/v1", "policy/v1"] {
        let body = json!({"apiVersion": version, "kind": "DeleteOptions", "gracePeriodSeconds": 0});
        assert_eq!(read("DeleteOptions", &body.to_string())["gracePeriodSeconds"], 0);
    }
}

#[test]
fn unknown_and_duplicate_fields_fail_warn_or_pass() {
    let body = r#"{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1,"replicas":2,"what":1,
        "template":{"spec":{"containers":[{"name":"c","imag":"i"}],"nodeSelector":{"a":"b","a":"c"}}}},"Spec":{}}"#;
    let problems = [
        "duplicate field \"spec.replicas\"",
        "unknown field \"spec.what\"",
        "unknown field \"spec.template.spec.containers[0].imag\"",
        "duplicate field \"spec.template.spec.nodeSelector.a\"",
        "unknown field \"Spec\"",
    ];
    let decode = |validation| decode(&target("Deployment"), Format::Json, body.as_bytes(), validation);
    assert_eq!(
        decode(FieldValidation::Strict).unwrap_err().message,
        format!(
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: {}",
            problems.join(", ")
        )
    );
    let warned = decode(FieldValidation::Warn).unwrap();
    assert_eq!(warned.warnings, problems);
    assert_eq!(warned.object["spec"]["replicas"], 2);
    assert_eq!(decode(FieldValidation::Ignore).unwrap().warnings, [""; 0]);
}

#[test]
fn yaml_is_read_as_json_is() {
    let body =
        b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  k: \"1\"\n  k: \"2\"\nfoo: bar\n";
    let decode = |body: &[u8], validation| decode(&target("ConfigMap"), Format::Yaml, body, validation);
    assert_eq!(
        decode(body, FieldValidation::Strict).unwrap_err().message,
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: yaml: unmarshal errors:\n  line 6: key \"k\" already set in map, unknown field \"foo\""
    );
    let warned = decode(body, FieldValidation::Warn).unwrap();
    assert_eq!(warned.object["data"], json!({"k": "2"}));
    let two = b"metadata: {name: a}\n---\nmetadata: {name: b}\n";
    assert_eq!(decode(two, FieldValidation::Strict).unwrap().object["metadata"]["name"], "a");
    let numbers = b"metadata: {name: a}\ndata: {k: 5}\n";
    assert!(
        decode(numbers, FieldValidation::Warn)
            .unwrap_err()
            .message
            .ends_with("ConfigMap.data of type string")
    );
    assert!(decode(b"a: [", FieldValidation::Warn).is_err());
}

#[test]
fn aliases_do_not_multiply_without_bound() {
    let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
    for level in 1..12 {
        let previous = vec![format!("*a{}", level - 1); 10].join(",");
        bomb.push_str(&format!("a{level}: &a{level} [{previous}]\n"));
    }
    assert!(decode(&target("ConfigMap"), Format::Yaml, bomb.as_bytes(), FieldValidation::Warn).is_err());
}

#[test]
fn deep_and_broken_unicode_is_read_where_it_can_be() {
    let deep = format!(r#"{{"x":{}{}}}"#, "[".repeat(9_000), "]".repeat(9_000));
    assert_eq!(read("ConfigMap", &deep)["kind"], "ConfigMap");
    let body = b"{\"data\":{\"k\":\"\xff\xfe\"}}";
    let decoded = decode(&target("ConfigMap"), Format::Json, body, FieldValidation::Warn).unwrap();
    assert_eq!(decoded.object["data"]["k"], "\u{fffd}\u{fffd}");
}

#[test]
fn the_stored_form_is_stable() {
    let pod = read("Pod", r#"{"spec":{"containers":[{"name":"c"}],"volumes":[{"name":"v","secret":{}}]}}"#);
    let schema = Schema::built_in_kind("", "v1", "Pod").unwrap();
    assert_eq!(normalize(&schema, pod.clone(), FieldValidation::Strict).unwrap().object, pod);
}

mod properties {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn no_bytes_make_the_decoder_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            _ = decode(&target("Pod"), Format::Json, &body, FieldValidation::Strict);
            _ = decode(&target("Pod"), Format::Yaml, &body, FieldValidation::Strict);
        }

        #[test]
        fn reading_twice_gives_the_same_result(body in pod_like(4)) {
            if let Ok(first) = decode(&target("Pod"), Format::Json, body.to_string().as_bytes(), FieldValidation::Warn) {
                let again = decode(&target("Pod"), Format::Json, first.object.to_string().as_bytes(), FieldValidation::Strict);
                prop_assert_eq!(again.map(|d| d.object), Ok(first.object));
            }
        }
    }

    /// Generates documents with the keys of pods, whose values often fit.
    fn pod_like(depth: u32) -> impl Strategy<Value = Value> {
        let key = prop::sample::select(vec![
            "metadata",
            "name",
            "labels",
            "spec",
            "containers",
            "env",
            "value",
            "ports",
            "containerPort",
            "replicas",
            "resources",
            "limits",
            "volumes",
            "emptyDir",
            "creationTimestamp",
            "nodeSelector",
            "tolerations",
        ]);
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i32>().prop_map(Value::from),
            "[a-z0-9]{0,3}".prop_map(Value::from),
            Just(Value::from("2025-01-01T00:00:00Z")),
        ];
        leaf.prop_recursive(depth, 64, 6, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map(key.clone(), inner, 0..6)
                    .prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
            ]
        })
    }
}
