//! Secrets.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::configmap::{DATA_BYTES, check_immutable, decoded_size};
use super::{CORE, entry, key_pair, metadata};
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{FieldSelector, Kind, Scope};
use crate::schema::{go, syntax};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{add_invalid, immutable, too_long, words};

pub fn kind() -> Kind {
    Kind {
        columns: vec![
            Column::name(),
            Column::text("Type", TYPE, |secret, _| secret.text("type").into()),
            Column::text("Data", DATA, |secret, _| secret.map("data").map_or(0, serde_json::Map::len).into()),
            Column::age(),
        ],
        field_selectors: vec![FieldSelector { path: "type", value: |secret| secret.text("type").to_owned() }],
        semantics: Semantics { counts_generations: false, ..Semantics::default() },
        ..entry(&CORE, "Secret", "secrets", Secret)
    }
}

const TYPE: &str = "Used to facilitate programmatic handling of secret data. More info: https://kubernetes.io/docs/concepts/configuration/secret/#secret-types";
const DATA: &str = "Data contains the secret data. Each key must consist of alphanumeric characters, '-', '_' or '.'. The serialized form of the secret data is a base64 encoded string, representing the arbitrary (possibly non-string) data value here. Described in https://tools.ietf.org/html/rfc4648#section-4";

struct Secret;

impl Lifecycle for Secret {
    fn default(&self, secret: &mut Value) {
        secret.or_text("type", "Opaque");
        merge_string_data(secret);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        if new.text("type").is_empty() {
            new.restore("type", old);
        }
    }
}

impl Validation for Secret {
    fn validate(&self, secret: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(secret, &mut errors);
        check_data(secret, &mut errors);
        check_type(secret, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        immutable(new.at("type"), old.at("type"), &Path::root("type"), &mut errors);
        check_immutable(new, old, &["data"], &mut errors);
        metadata::whole(new, Scope::Namespaced, NameRule::Subdomain, &mut errors);
        check_data(new, &mut errors);
        check_type(new, &mut errors);
        errors
    }

    fn warnings(&self, secret: &Value, _: Option<&Value>) -> Vec<String> {
        if secret.text("type") != "kubernetes.io/tls" {
            return Vec::new();
        }
        key_pair::problem(&data_of(secret, "tls.crt"), &data_of(secret, "tls.key")).into_iter().collect()
    }
}

/// Returns the bytes of an entry. Empty if it does not exist.
fn data_of(secret: &Value, key: &str) -> Vec<u8> {
    STANDARD.decode(secret.at("data").text(key)).unwrap_or_default()
}

fn check_data(secret: &Value, errors: &mut Errors) {
    let path = Path::root("data");
    let mut size = 0;
    for (key, value) in secret.map("data").into_iter().flatten() {
        add_invalid(words::config_key(key), key, &path.key(key), errors);
        size += decoded_size(value.as_str().unwrap_or_default());
    }
    if size > DATA_BYTES {
        too_long(DATA_BYTES, &path, errors);
    }
}

/// Validates what a secret of a known type must have.
fn check_type(secret: &Value, errors: &mut Errors) {
    let path = Path::root("data");
    let data = secret.at("data");
    let lacks = |key: &str| data.get(key).is_none();
    match secret.text("type") {
        "kubernetes.io/service-account-token" => {
            let key = "kubernetes.io/service-account.name";
            if secret.at("metadata").at("annotations").text(key).is_empty() {
                errors.required(&Path::root("metadata").child("annotations").key(key), "");
            }
        }
        "kubernetes.io/dockercfg" => check_json(data, ".dockercfg", errors),
        "kubernetes.io/dockerconfigjson" => check_json(data, ".dockerconfigjson", errors),
        "kubernetes.io/basic-auth" if lacks("username") && lacks("password") => {
            errors.required(&path.key("username"), "");
            errors.required(&path.key("password"), "");
        }
        "kubernetes.io/ssh-auth" if data.text("ssh-privatekey").is_empty() => {
            errors.required(&path.key("ssh-privatekey"), "");
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"].into_iter().filter(|key| lacks(key)) {
                errors.required(&path.key(key), "");
            }
        }
        _ => {}
    }
}

/// Validates an entry that must be a JSON object.
fn check_json(data: &Value, key: &str, errors: &mut Errors) {
    let path = Path::root("data");
    let path = path.key(key);
    let Some(text) = data.at(key).as_str() else {
        return errors.required(&path, "");
    };
    let bytes = STANDARD.decode(text).unwrap_or_default();
    let problem = syntax::check(&bytes).err().or_else(|| match serde_json::from_slice(&bytes) {
        Ok(Value::Object(_) | Value::Null) => None,
        Ok(other) => Some(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go::kind_of(&other)
        )),
        Err(why) => Some(why.to_string()),
    });
    if let Some(problem) = problem {
        errors.invalid(&path, "<secret contents redacted>", problem);
    }
}

/// Encodes `stringData`, which is write-only, into `data`, where it takes precedence.
fn merge_string_data(secret: &mut Value) {
    let Some(Value::Object(strings)) = secret.unset("stringData") else { return };
    if strings.is_empty() {
        return;
    }
    let data = secret.object_mut("data");
    for (key, text) in strings {
        data.set(&key, STANDARD.encode(text.as_str().unwrap_or_default()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;
    use serde_json::json;

    #[test]
    fn strings_go_into_the_data_and_win() {
        let mut secret = json!({"data": {"k": "YQ=="}, "stringData": {"k": "b", "l": ""}});
        Secret.default(&mut secret);
        assert_eq!(secret, json!({"type": "Opaque", "data": {"k": "Yg==", "l": ""}}));
    }

    #[test]
    fn built_in_secret_types_require_their_keys() {
        for (of, data, expected) in [
            ("Opaque", json!({}), vec![]),
            ("kubernetes.io/tls", json!({"tls.crt": ""}), vec!["Required data[tls.key]"]),
            ("kubernetes.io/dockercfg", json!({".dockercfg": "e30="}), vec![]),
            ("kubernetes.io/dockercfg", json!({".dockercfg": "YQ=="}), vec!["Invalid data[.dockercfg]"]),
            ("kubernetes.io/dockerconfigjson", json!({}), vec!["Required data[.dockerconfigjson]"]),
            ("kubernetes.io/basic-auth", json!({"username": ""}), vec![]),
            (
                "kubernetes.io/basic-auth",
                json!({}),
                vec!["Required data[username]", "Required data[password]"],
            ),
            ("kubernetes.io/ssh-auth", json!({}), vec!["Required data[ssh-privatekey]"]),
            (
                "kubernetes.io/service-account-token",
                json!({}),
                vec!["Required metadata.annotations[kubernetes.io/service-account.name]"],
            ),
        ] {
            check::create(&Secret, json!({"type": of, "data": data}), &expected);
        }
    }

    #[test]
    fn a_secret_keeps_its_type() {
        check::update(&Secret, json!({"type": "b"}), &json!({"type": "a"}), &["Invalid type"]);
    }
}
