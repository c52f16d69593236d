//! Decodes a configuration from YAML or JSON. Strict: unknown fields are errors that name them.

use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use super::{
    API_VERSION, EncryptionConfiguration, KIND, Key, KmsConfiguration, MAX_FILE, ProviderConfiguration,
    ResourceConfiguration, Timeout,
};

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(3);
const DEFAULT_CACHE_SIZE: i32 = 1000;
const DEFAULT_KMS_VERSION: &str = "v1";

/// Parses a configuration file and sets defaults. Does not validate it.
pub fn parse(text: &str) -> Result<EncryptionConfiguration, String> {
    if text.len() > MAX_FILE {
        return Err(format!("the file has {} bytes, expected at most {MAX_FILE}", text.len()));
    }
    let document: Value =
        serde_saphyr::from_str(text).map_err(|error| without_content(&error.to_string()))?;
    let mut decoder = Decoder::default();
    let configuration = decoder.configuration(&document)?;
    match decoder.unknown.is_empty() {
        true => Ok(configuration),
        false => Err(format!("strict decoding error: {}", decoder.unknown.join(", "))),
    }
}

/// Returns the first line of a parser's message. The following lines quote the file, and could leak keys.
fn without_content(message: &str) -> String {
    message.lines().next().unwrap_or("the file is not YAML").to_owned()
}

#[derive(Default)]
struct Decoder {
    unknown: Vec<String>,
}

impl Decoder {
    fn configuration(&mut self, document: &Value) -> Result<EncryptionConfiguration, String> {
        let fields = document.as_object().ok_or("expected a mapping")?;
        let text = |name| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        match (text("apiVersion"), text("kind")) {
            (_, "") => return Err("Object 'Kind' is missing".into()),
            (API_VERSION, KIND) => {}
            (version, kind) => return Err(format!("no kind {kind:?} is registered for version {version:?}")),
        }
        self.check_known(fields, &["apiVersion", "kind", "resources"], "");
        let resources = list(fields.get("resources"), "resources")?.iter().enumerate();
        let resources = resources.map(|(at, value)| self.resource(value, &format!("resources[{at}]")));
        Ok(EncryptionConfiguration { resources: resources.collect::<Result<_, _>>()? })
    }

    fn resource(&mut self, value: &Value, path: &str) -> Result<ResourceConfiguration, String> {
        let fields = mapping(value, path)?;
        self.check_known(fields, &["resources", "providers"], path);
        let names_path = format!("{path}.resources");
        let names = list(fields.get("resources"), &names_path)?.iter().enumerate();
        let names = names.map(|(at, value)| text(Some(value), &format!("{names_path}[{at}]")));
        let providers_path = format!("{path}.providers");
        let providers = list(fields.get("providers"), &providers_path)?.iter().enumerate();
        let providers = providers.map(|(at, value)| self.provider(value, &format!("{providers_path}[{at}]")));
        Ok(ResourceConfiguration {
            resources: names.collect::<Result<_, _>>()?,
            providers: providers.collect::<Result<_, _>>()?,
        })
    }

    fn provider(&mut self, value: &Value, path: &str) -> Result<ProviderConfiguration, String> {
        let fields = mapping(value, path)?;
        self.check_known(fields, &["aesgcm", "aescbc", "secretbox", "identity", "kms"], path);
        let mut keys = |name: &str| {
            given(fields, name).map(|value| self.keys(value, &format!("{path}.{name}"))).transpose()
        };
        let (aesgcm, aescbc, secretbox) = (keys("aesgcm")?, keys("aescbc")?, keys("secretbox")?);
        let identity = given(fields, "identity");
        if let Some(identity) = identity {
            let path = format!("{path}.identity");
            self.check_known(mapping(identity, &path)?, &[], &path);
        }
        let kms = given(fields, "kms").map(|value| self.kms(value, &format!("{path}.kms"))).transpose()?;
        Ok(ProviderConfiguration { aesgcm, aescbc, secretbox, identity: identity.is_some(), kms })
    }

    fn keys(&mut self, value: &Value, path: &str) -> Result<Vec<Key>, String> {
        let fields = mapping(value, path)?;
        self.check_known(fields, &["keys"], path);
        let path = format!("{path}.keys");
        let keys = list(fields.get("keys"), &path)?.iter().enumerate();
        keys.map(|(at, value)| self.key(value, &format!("{path}[{at}]"))).collect()
    }

    fn key(&mut self, value: &Value, path: &str) -> Result<Key, String> {
        let fields = mapping(value, path)?;
        self.check_known(fields, &["name", "secret"], path);
        Ok(Key {
            name: text(fields.get("name"), &format!("{path}.name"))?,
            secret: Zeroizing::new(text(fields.get("secret"), &format!("{path}.secret"))?),
        })
    }

    fn kms(&mut self, value: &Value, path: &str) -> Result<KmsConfiguration, String> {
        let fields = mapping(value, path)?;
        self.check_known(fields, &["apiVersion", "name", "cachesize", "endpoint", "timeout"], path);
        let of = |name: &str| text(fields.get(name), &format!("{path}.{name}"));
        let api_version = match of("apiVersion")? {
            version if version.is_empty() => DEFAULT_KMS_VERSION.to_owned(),
            version => version,
        };
        let default_size = (api_version == "v1").then_some(DEFAULT_CACHE_SIZE);
        let cache_size = cache_size(fields.get("cachesize"), path)?.or(default_size);
        let timeout = timeout(fields.get("timeout"), path)?;
        Ok(KmsConfiguration {
            api_version,
            name: of("name")?,
            cache_size,
            endpoint: of("endpoint")?,
            timeout,
        })
    }

    fn check_known(&mut self, fields: &Map<String, Value>, known: &[&str], path: &str) {
        let dot = if path.is_empty() { "" } else { "." };
        let unknown = fields.keys().filter(|name| !known.contains(&name.as_str()));
        self.unknown.extend(unknown.map(|name| format!("unknown field \"{path}{dot}{name}\"")));
    }
}

/// Returns a field if it is present and not null.
fn given<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    fields.get(name).filter(|value| !value.is_null())
}

fn mapping<'a>(value: &'a Value, path: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{path}: expected a mapping"))
}

fn list<'a>(value: Option<&'a Value>, path: &str) -> Result<&'a [Value], String> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(items)) => Ok(items),
        Some(_) => Err(format!("{path}: expected a list")),
    }
}

fn text(value: Option<&Value>, path: &str) -> Result<String, String> {
    match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(_) => Err(format!("{path}: expected a string")),
    }
}

fn cache_size(value: Option<&Value>, path: &str) -> Result<Option<i32>, String> {
    let Some(value) = value.filter(|value| !value.is_null()) else { return Ok(None) };
    let size = value.as_i64().and_then(|size| i32::try_from(size).ok());
    size.map(Some).ok_or_else(|| format!("{path}.cachesize: expected a 32-bit integer"))
}

fn timeout(value: Option<&Value>, path: &str) -> Result<Timeout, String> {
    let path = format!("{path}.timeout");
    if value.is_none_or(Value::is_null) {
        return Ok(Timeout { text: "3s".into(), duration: Some(DEFAULT_TIMEOUT) });
    }
    let text = text(value, &path)?;
    let parsed = if text == "0" { Ok(SignedDuration::ZERO) } else { text.parse() };
    let parsed: SignedDuration = parsed
        .map_err(|_| format!("{path}: {text:?} is not a duration, expected one such as 3s or 500ms"))?;
    let duration = Duration::try_from(parsed).ok().filter(|duration| !duration.is_zero());
    let text = if parsed.is_zero() { "0s".into() } else { text };
    Ok(Timeout { text, duration })
}
