//! Validation, with v1.34's errors in the same order and wording.

use std::collections::BTreeSet;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::{EncryptionConfiguration, Key, KmsConfiguration, ProviderConfiguration};
use crate::GroupResource;

const AES_KEY_SIZES: &[usize] = &[16, 24, 32];
const SECRETBOX_KEY_SIZES: &[usize] = &[32];

/// Resources that are stored but have no API.
const WITHOUT_API: &[&str] = &["apiserveripinfo", "serviceipallocations", "servicenodeportallocations"];

/// Validates a configuration and returns all errors. With `reload`, the rules are those for
/// `--encryption-provider-config-automatic-reload`.
pub fn validate(configuration: &EncryptionConfiguration, reload: bool) -> Vec<String> {
    let mut errors = Errors(Vec::new());
    if configuration.resources.is_empty() {
        errors.required("resources", "at least one resources is required");
        return errors.0;
    }
    let mut kms_names = BTreeSet::new();
    for (at, of) in configuration.resources.iter().enumerate() {
        let resources = format!("resources[{at}].resources");
        let providers = format!("resources[{at}].providers");
        if of.resources.is_empty() {
            errors.required(&resources, &format!("at least one {resources} is required"));
        }
        overlap(&of.resources, &resources, &mut errors);
        for (at, name) in of.resources.iter().enumerate() {
            if let Some(problem) = problem_of_name(name) {
                errors.invalid(&format!("{resources}[{at}]"), &json!(name), problem);
            }
        }
        if of.providers.is_empty() {
            errors.required(&providers, &format!("at least one {providers} is required"));
        }
        for (at, provider) in of.providers.iter().enumerate() {
            validate_provider(provider, &format!("{providers}[{at}]"), &mut kms_names, reload, &mut errors);
        }
    }
    errors.0
}

struct Errors(Vec<String>);

impl Errors {
    fn required(&mut self, path: &str, detail: &str) {
        self.0.push(format!("{path}: Required value: {detail}"));
    }

    fn invalid(&mut self, path: &str, value: &Value, detail: &str) {
        self.0.push(format!("{path}: Invalid value: {value}: {detail}"));
    }
}

fn overlap(resources: &[String], path: &str, errors: &mut Errors) {
    let parsed: Vec<_> = resources.iter().map(|name| GroupResource::parse(name)).collect();
    let (mut has_overlap, mut has_duplicate) = (false, false);
    for (i, one) in parsed.iter().enumerate() {
        for (j, other) in parsed.iter().enumerate() {
            if i == j {
                continue;
            }
            if one == other && !has_duplicate {
                has_duplicate = true;
                continue;
            }
            let is_everything = one.group == "*" && one.resource == "*";
            let share_wildcard = one.group == other.group && (one.resource == "*" || other.resource == "*");
            has_overlap |= is_everything || share_wildcard;
        }
    }
    if has_duplicate {
        errors.invalid(path, &json!(resources), "the same resource cannot be specified multiple times");
    }
    if has_overlap {
        let detail = "using overlapping resources such as 'secrets' and '*.' in the same resource list is not \
                      allowed as they will be masked";
        errors.invalid(path, &json!(resources), detail);
    }
}

fn problem_of_name(name: &str) -> Option<&'static str> {
    let parsed = GroupResource::parse(name);
    if name.to_lowercase() != name {
        Some("resource name should not contain capital letters")
    } else if name == "*" {
        Some("use '*.' to encrypt all the resources from core API group or *.* to encrypt all resources")
    } else if WITHOUT_API.contains(&name) {
        Some("resources which do not have REST API/s cannot be encrypted")
    } else if parsed.group == "events.k8s.io" {
        Some(
            "'*.events.k8s.io' objects are stored using the 'events' API group in etcd. Use 'events' instead in the \
             config file",
        )
    } else if parsed.group == "extensions" {
        Some("'extensions' group has been removed and cannot be used for encryption")
    } else if parsed.group == "*" && parsed.resource != "*" {
        Some("encrypting the same resource across groups is not supported")
    } else {
        None
    }
}

fn validate_provider<'a>(
    provider: &'a ProviderConfiguration,
    path: &str,
    kms_names: &mut BTreeSet<&'a str>,
    reload: bool,
    errors: &mut Errors,
) {
    match provider.count() {
        0 => errors.invalid(
            path,
            &provider.shown(),
            "provider does not contain any of the expected providers: KMS, AESGCM, AESCBC, Secretbox, Identity",
        ),
        1 => {}
        _ => errors.invalid(
            path,
            &provider.shown(),
            "more than one provider specified in a single element, should split into different list elements",
        ),
    }
    if let Some(kms) = &provider.kms {
        validate_kms(kms, &format!("{path}.kms"), kms_names, reload, errors);
        kms_names.insert(&kms.name);
    } else if let Some(keys) = &provider.aesgcm {
        validate_keys(keys, &format!("{path}.aesgcm.keys"), AES_KEY_SIZES, errors);
    } else if let Some(keys) = &provider.aescbc {
        validate_keys(keys, &format!("{path}.aescbc.keys"), AES_KEY_SIZES, errors);
    } else if let Some(keys) = &provider.secretbox {
        validate_keys(keys, &format!("{path}.secretbox.keys"), SECRETBOX_KEY_SIZES, errors);
    }
}

impl ProviderConfiguration {
    fn count(&self) -> usize {
        let given = [self.aesgcm.is_some(), self.aescbc.is_some(), self.secretbox.is_some(), self.identity];
        given.into_iter().chain([self.kms.is_some()]).filter(|is_given| *is_given).count()
    }

    /// Formats the value for a message, with v1.34's layout but without the secrets.
    fn shown(&self) -> Value {
        let keys = |keys: &Option<Vec<Key>>| {
            let shown = |key: &Key| json!({"Name": key.name, "Secret": "REDACTED"});
            keys.as_ref().map(|keys| json!({"Keys": keys.iter().map(shown).collect::<Vec<_>>()}))
        };
        json!({
            "AESGCM": keys(&self.aesgcm),
            "AESCBC": keys(&self.aescbc),
            "Secretbox": keys(&self.secretbox),
            "Identity": self.identity.then(|| json!({})),
            "KMS": self.kms.as_ref().map(|kms| json!({
                "APIVersion": kms.api_version,
                "Name": kms.name,
                "CacheSize": kms.cache_size,
                "Endpoint": kms.endpoint,
                "Timeout": kms.timeout.text,
            })),
        })
    }
}

fn validate_keys(keys: &[Key], path: &str, sizes: &[usize], errors: &mut Errors) {
    if keys.is_empty() {
        errors.required(path, "at least one keys is required");
    }
    for (at, key) in keys.iter().enumerate() {
        validate_key(key, &format!("{path}[{at}]"), sizes, errors);
    }
}

fn validate_key(key: &Key, path: &str, sizes: &[usize], errors: &mut Errors) {
    if key.name.is_empty() {
        errors.required(&format!("{path}.name"), "name is a mandatory field for a key");
    }
    let path = format!("{path}.secret");
    if key.secret.is_empty() {
        return errors.required(&path, "secret is a mandatory field for a key");
    }
    match key.bytes() {
        None => errors.invalid(&path, &json!("REDACTED"), "secrets must be base64 encoded"),
        Some(secret) if !sizes.contains(&secret.len()) => {
            let sizes: Vec<_> = sizes.iter().map(usize::to_string).collect();
            let detail = format!(
                "secret is not of the expected length, got {}, expected one of [{}]",
                secret.len(),
                sizes.join(" ")
            );
            errors.invalid(&path, &json!("REDACTED"), &detail);
        }
        Some(_) => {}
    }
}

impl Key {
    /// Decodes the key. Returns `None` if it is not base64. Ignores line breaks, as Go does.
    pub(crate) fn bytes(&self) -> Option<Zeroizing<Vec<u8>>> {
        let text: Zeroizing<String> =
            Zeroizing::new(self.secret.chars().filter(|letter| !matches!(letter, '\n' | '\r')).collect());
        BASE64_STANDARD.decode(text.as_bytes()).ok().map(Zeroizing::new)
    }
}

fn validate_kms(
    kms: &KmsConfiguration,
    path: &str,
    names: &BTreeSet<&str>,
    reload: bool,
    errors: &mut Errors,
) {
    let is_v1 = kms.api_version == "v1";
    let name = &kms.name;
    let name_path = format!("{path}.name");
    if name.is_empty() {
        errors.required(&name_path, "name is a mandatory field for a provider");
    }
    if !is_v1 && name.contains(':') {
        let detail = format!("invalid KMS provider name {name}, must not contain ':'");
        errors.invalid(&name_path, &json!(name), &detail);
    }
    if (reload || !is_v1) && names.contains(name.as_str()) {
        let detail = format!("duplicate KMS provider name {name}, names must be unique");
        errors.invalid(&name_path, &json!(name), &detail);
    }
    if kms.timeout.duration.is_none() {
        let detail = "timeout should be a positive value";
        errors.invalid(&format!("{path}.timeout"), &json!(kms.timeout.text), detail);
    }
    if let Some(problem) = problem_of_endpoint(&kms.endpoint) {
        errors.invalid(&format!("{path}.endpoint"), &json!(kms.endpoint), &problem);
    }
    match kms.cache_size {
        Some(size) if !is_v1 => {
            errors.invalid(&format!("{path}.cachesize"), &json!(size), "cachesize is not supported in v2");
        }
        Some(0) => {
            let detail = "cachesize should be a positive value, or negative to disable";
            errors.invalid(&format!("{path}.cachesize"), &json!(0), detail);
        }
        _ => {}
    }
    if !is_v1 && kms.api_version != "v2" {
        let detail = "unsupported apiVersion apiVersion for KMS provider, only v1 and v2 are supported";
        errors.invalid(&format!("{path}.apiVersion"), &json!(kms.api_version), detail);
    }
}

fn problem_of_endpoint(endpoint: &str) -> Option<String> {
    if endpoint.is_empty() {
        return Some("endpoint is a mandatory field for a kms".into());
    }
    match scheme(endpoint) {
        Err(why) => Some(format!("invalid endpoint for kms provider, error: parse {endpoint:?}: {why}")),
        Ok("unix") => None,
        Ok(scheme) => Some(format!("unsupported scheme {scheme:?} for KMS provider, only unix is supported")),
    }
}

/// Returns the scheme of a URL, as Go parses it. Empty if there is none.
fn scheme(url: &str) -> Result<&str, &'static str> {
    if url.chars().any(|letter| letter.is_ascii_control()) {
        return Err("net/url: invalid control character in URL");
    }
    match url.split_once(':') {
        Some(("", _)) => Err("missing protocol scheme"),
        Some((scheme, _)) => {
            let mut letters = scheme.chars();
            let starts = letters.next().is_some_and(|letter| letter.is_ascii_alphabetic());
            let follows =
                letters.all(|letter| letter.is_ascii_alphanumeric() || matches!(letter, '+' | '-' | '.'));
            match (starts, follows) {
                (true, true) => Ok(scheme),
                (false, _)
                    if scheme
                        .starts_with(|letter: char| letter.is_ascii_digit() || "+-.".contains(letter)) =>
                {
                    Err("first path segment in URL cannot contain colon")
                }
                _ => Ok(""),
            }
        }
        None => Ok(""),
    }
}
