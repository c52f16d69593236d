use proptest::prelude::*;

use super::*;

const KEY_16: &str = "c2VjcmV0IGlzIHNlY3VyZQ==";
const KEY_32: &str = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

/// Builds a configuration with these entries of `resources`.
fn configuration(resources: &str) -> String {
    format!("apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n{resources}")
}

fn errors_of(resources: &str, reload: bool) -> Vec<String> {
    validate(&parse(&configuration(resources)).unwrap(), reload)
}

/// Checks the errors for an entry with this provider.
fn check_provider(provider: &str, expected: &[&str]) {
    let errors = errors_of(&format!("- resources: [secrets]\n  providers:\n  - {provider}\n"), false);
    assert_eq!(errors, expected, "{provider}");
}

/// Checks the errors for an entry with these resources.
fn check_resources(resources: &str, expected: &[&str]) {
    let errors = errors_of(&format!("- resources: {resources}\n  providers:\n  - identity: {{}}\n"), false);
    assert_eq!(errors, expected, "{resources}");
}

#[test]
fn a_configuration_of_every_provider_is_read() {
    let text = configuration(&format!(
        "- resources: [secrets, '*.apps']\n  providers:\n\
         \x20 - aescbc: {{keys: [{{name: a, secret: {KEY_32}}}]}}\n\
         \x20 - aesgcm: {{keys: [{{name: b, secret: {KEY_16}}}]}}\n\
         \x20 - secretbox: {{keys: [{{name: c, secret: {KEY_32}}}]}}\n\
         \x20 - kms: {{apiVersion: v2, name: d, endpoint: 'unix:///tmp/kms.sock', timeout: 1.5s}}\n\
         \x20 - identity: {{}}\n"
    ));
    let configuration = parse(&text).unwrap();
    assert_eq!(validate(&configuration, true), [""; 0]);
    let [only] = &configuration.resources[..] else { panic!("{configuration:?}") };
    assert_eq!(only.resources, ["secrets", "*.apps"]);
    let kms = only.providers[3].kms.as_ref().unwrap();
    assert_eq!((kms.timeout.duration, kms.cache_size), (Some(Duration::from_millis(1500)), None));
    let shown = format!("{configuration:?}");
    assert!(!shown.contains(KEY_32) && !shown.contains(KEY_16), "{shown}");
}

#[test]
fn an_invalid_configuration_is_rejected_with_its_location() {
    for (text, expected) in [
        ("", "expected a mapping"),
        ("[]", "expected a mapping"),
        ("{}", "Object 'Kind' is missing"),
        (
            "{apiVersion: v1, kind: EncryptionConfiguration}",
            "no kind \"EncryptionConfiguration\" is registered for version \"v1\"",
        ),
        (&configuration("- resources: secrets\n"), "resources[0].resources: expected a list"),
        (&configuration("- resources: [1]\n"), "resources[0].resources[0]: expected a string"),
        (
            &configuration("- resourcs: [a]\n  providers: [{rot13: {}, identity: {x: 1}}]\n"),
            "strict decoding error: unknown field \"resources[0].resourcs\", unknown field \
             \"resources[0].providers[0].rot13\", unknown field \"resources[0].providers[0].identity.x\"",
        ),
        (
            &configuration("- resources: [a]\n  providers: [{kms: {timeout: soon}}]\n"),
            "resources[0].providers[0].kms.timeout: \"soon\" is not a duration, expected one such as 3s or 500ms",
        ),
        (
            &configuration("- resources: [a]\n  providers: [{kms: {cachesize: 3000000000}}]\n"),
            "resources[0].providers[0].kms.cachesize: expected a 32-bit integer",
        ),
    ] {
        assert_eq!(parse(text).unwrap_err(), expected, "{text}");
    }
}

#[test]
fn providers_are_validated_as_in_v1_34() {
    check_provider("identity: {}", &[]);
    check_provider(
        "{}",
        &["resources[0].providers[0]: Invalid value: \
           {\"AESCBC\":null,\"AESGCM\":null,\"Identity\":null,\"KMS\":null,\"Secretbox\":null}: provider does not \
           contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity"],
    );
    check_provider(
        &format!("{{identity: {{}}, aescbc: {{keys: [{{name: a, secret: {KEY_32}}}]}}}}"),
        &["resources[0].providers[0]: Invalid value: \
           {\"AESCBC\":{\"Keys\":[{\"Name\":\"a\",\"Secret\":\"REDACTED\"}]},\"AESGCM\":null,\"Identity\":{},\
           \"KMS\":null,\"Secretbox\":null}: more than one provider specified in a single element, should split into \
           different list elements"],
    );
    check_provider(
        "aescbc: {}",
        &["resources[0].providers[0].aescbc.keys: Required value: at least one keys is required"],
    );
    check_provider(
        "aesgcm: {keys: [{}]}",
        &[
            "resources[0].providers[0].aesgcm.keys[0].name: Required value: name is a mandatory field for a key",
            "resources[0].providers[0].aesgcm.keys[0].secret: Required value: secret is a mandatory field for a key",
        ],
    );
    check_provider(
        "aescbc: {keys: [{name: a, secret: '!'}]}",
        &[
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secrets must be base64 \
           encoded",
        ],
    );
    check_provider(
        "aescbc: {keys: [{name: a, secret: YQ==}]}",
        &[
            "resources[0].providers[0].aescbc.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the \
           expected length, got 1, expected one of [16 24 32]",
        ],
    );
    check_provider(
        &format!("secretbox: {{keys: [{{name: a, secret: {KEY_16}}}]}}"),
        &[
            "resources[0].providers[0].secretbox.keys[0].secret: Invalid value: \"REDACTED\": secret is not of the \
           expected length, got 16, expected one of [32]",
        ],
    );
}

#[test]
fn kms_providers_are_validated_as_in_v1_34() {
    check_provider("kms: {apiVersion: v2, name: a, endpoint: 'unix:///a'}", &[]);
    check_provider("kms: {name: 'a:b', endpoint: 'unix:///a'}", &[]);
    check_provider(
        "kms: {apiVersion: v3, timeout: -1s, cachesize: 5}",
        &[
            "resources[0].providers[0].kms.name: Required value: name is a mandatory field for a provider",
            "resources[0].providers[0].kms.timeout: Invalid value: \"-1s\": timeout should be a positive value",
            "resources[0].providers[0].kms.endpoint: Invalid value: \"\": endpoint is a mandatory field for a kms",
            "resources[0].providers[0].kms.cachesize: Invalid value: 5: cachesize is not supported in v2",
            "resources[0].providers[0].kms.apiVersion: Invalid value: \"v3\": unsupported apiVersion apiVersion for KMS \
             provider, only v1 and v2 are supported",
        ],
    );
    check_provider(
        "kms: {apiVersion: v2, name: 'a:b', endpoint: 'http://a', timeout: 0s}",
        &[
            "resources[0].providers[0].kms.name: Invalid value: \"a:b\": invalid KMS provider name a:b, must not contain \
             ':'",
            "resources[0].providers[0].kms.timeout: Invalid value: \"0s\": timeout should be a positive value",
            "resources[0].providers[0].kms.endpoint: Invalid value: \"http://a\": unsupported scheme \"http\" for KMS \
             provider, only unix is supported",
        ],
    );
    check_provider(
        "kms: {name: a, endpoint: ':a', cachesize: 0}",
        &[
            "resources[0].providers[0].kms.endpoint: Invalid value: \":a\": invalid endpoint for kms provider, error: \
             parse \":a\": missing protocol scheme",
            "resources[0].providers[0].kms.cachesize: Invalid value: 0: cachesize should be a positive value, or \
             negative to disable",
        ],
    );
}

#[test]
fn kms_names_are_unique() {
    let twice = |version: &str| {
        let kms = format!("kms: {{apiVersion: {version}, name: a, endpoint: 'unix:///a'}}");
        format!("- resources: [secrets]\n  providers:\n  - {kms}\n  - {kms}\n")
    };
    let expected = "resources[0].providers[1].kms.name: Invalid value: \"a\": duplicate KMS provider name a, names must \
                    be unique";
    assert_eq!(errors_of(&twice("v2"), false), [expected]);
    assert_eq!(errors_of(&twice("v1"), false), [""; 0]);
    assert_eq!(errors_of(&twice("v1"), true), [expected]);
}

#[test]
fn resources_are_validated_as_in_v1_34() {
    const OVERLAP: &str = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
                           allowed as they will be masked";
    check_resources("[secrets, '*.apps', 'pods.metrics.k8s.io']", &[]);
    check_resources(
        "[]",
        &["resources[0].resources: Required value: at least one resources[0].resources is required"],
    );
    check_resources(
        "[secrets, secrets]",
        &[
            "resources[0].resources: Invalid value: [\"secrets\",\"secrets\"]: the same resource cannot be specified \
           multiple times",
        ],
    );
    for (names, shown) in [
        ("[secrets, '*.']", "[\"secrets\",\"*.\"]"),
        ("['*.*', pods]", "[\"*.*\",\"pods\"]"),
        ("['*.apps', deployments.apps]", "[\"*.apps\",\"deployments.apps\"]"),
    ] {
        check_resources(names, &[&format!("resources[0].resources: Invalid value: {shown}: {OVERLAP}")]);
    }
    for (name, problem) in [
        ("Secrets", "resource name should not contain capital letters"),
        ("*", "use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources"),
        ("apiserveripinfo", "resources which do not have REST API/s cannot be encrypted"),
        (
            "events.events.k8s.io",
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        ),
        ("ingresses.extensions", "'extensions' group has been removed and cannot be used for encryption"),
        ("secrets.*", "encrypting the same resource across groups is not supported"),
    ] {
        check_resources(
            &format!("['{name}']"),
            &[&format!("resources[0].resources[0]: Invalid value: {name:?}: {problem}")],
        );
    }
    assert_eq!(errors_of("", false), ["resources: Required value: at least one resources is required"]);
    assert_eq!(
        errors_of("- resources: [a]\n", false),
        ["resources[0].providers: Required value: at least one resources[0].providers is required"]
    );
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}") {
        _ = parse(&text).map(|configuration| validate(&configuration, true));
    }

    #[test]
    fn no_bent_configuration_makes_the_parser_panic(
        cuts in proptest::collection::vec((0usize..600, "[\\[\\]{}:,'a*.\\n -]{0,3}"), 1..6),
    ) {
        let mut text = configuration(&format!(
            "- resources: ['*.*']\n  providers:\n  - kms: {{name: a, endpoint: 'unix:///x', timeout: 3s}}\n  \
             - aescbc:\n      keys:\n      - name: a\n        secret: {KEY_16}\n  - identity: {{}}\n"
        ));
        for (at, inserted) in cuts {
            let at = at % (text.len() + 1);
            text.replace_range(at..(at + 2).min(text.len()), &inserted);
        }
        _ = parse(&text).map(|configuration| validate(&configuration, false));
    }
}
