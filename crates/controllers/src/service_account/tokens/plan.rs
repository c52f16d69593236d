//! Computes the missing data of a token Secret. Pure.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::view::Content;

pub(super) const CA: &str = "ca.crt";
pub(super) const NAMESPACE: &str = "namespace";
pub(super) const TOKEN: &str = "token";

/// The missing data, in base64.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct MissingData {
    pub(super) ca: Option<String>,
    pub(super) namespace: Option<String>,
    pub(super) token: bool,
}

impl MissingData {
    pub(super) fn nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Returns the missing data. The CA certificate must be current; the rest only has to be present.
pub(super) fn missing_data(content: &Content, namespace: &str, root_ca: Option<&str>) -> MissingData {
    let data =
        |field: &str| content.data.as_ref().and_then(|data| data.get(field)).map_or("", String::as_str);
    let ca = root_ca.map(encode).filter(|ca| data(CA) != ca);
    let namespace = data(NAMESPACE).is_empty().then(|| encode(namespace));
    MissingData { ca, namespace, token: data(TOKEN).is_empty() }
}

pub(super) fn encode(text: &str) -> String {
    STANDARD.encode(text)
}
