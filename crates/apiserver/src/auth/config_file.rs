//! Server configuration files: one document of a known group, version and kind, without unknown fields.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::aggregate::aggregate;
use crate::field::Errors;

const GROUP: &str = "apiserver.config.k8s.io";
const VERSIONS: [&str; 3] = ["v1alpha1", "v1beta1", "v1"];

/// An invalid configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct TypeMeta {
    api_version: String,
    kind: String,
}

/// Parses the document. `T` must have the fields `apiVersion` and `kind`.
pub(super) fn read<T: DeserializeOwned>(text: &str, kind: &str) -> Result<T, ConfigError> {
    if text.trim().is_empty() {
        return Err(ConfigError("empty config data".into()));
    }
    let failed = |why: serde_saphyr::Error| ConfigError(why.to_string());
    let meta: TypeMeta = serde_saphyr::from_str(text).map_err(failed)?;
    let version = meta.api_version.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix('/'));
    if meta.kind != kind || !version.is_some_and(|version| VERSIONS.contains(&version)) {
        let (api_version, found) = (meta.api_version, meta.kind);
        return Err(ConfigError(format!(
            "no kind {found:?} is registered for version {api_version:?}: expected {kind} of {GROUP}/v1, {GROUP}/v1beta1 or {GROUP}/v1alpha1"
        )));
    }
    serde_saphyr::from_str(text).map_err(failed)
}

/// Combines all errors in a configuration into one.
pub(super) fn refuse(errors: &Errors) -> Result<(), ConfigError> {
    let shown: Vec<String> =
        errors.0.iter().map(|error| format!("{}: {}", error.field, error.body())).collect();
    match aggregate(&shown) {
        Some(text) => Err(ConfigError(text)),
        None => Ok(()),
    }
}
