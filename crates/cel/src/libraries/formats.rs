//! Named string formats.

use super::Outcome;
use crate::declarations::FORMATS;
use crate::formats as schemas;
use crate::names;
use crate::value::Val;

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("format.named", [Val::String(name)]) => {
            let known = FORMATS.iter().find(|format| ***format == **name);
            Ok(known.map_or(Val::NONE, |name| Val::some(Val::Format(name))))
        }
        ("validate", [Val::Format(format), Val::String(text)]) => Ok(complaints(format, text)),
        (name, []) => {
            let name = name.strip_prefix("format.")?;
            Ok(Val::Format(FORMATS.iter().find(|format| **format == name)?))
        }
        _ => return None,
    })
}

/// Validates a string. Returns the errors as an optional list.
fn complaints(format: &str, text: &str) -> Val {
    let prefix = || text.strip_suffix('-').map_or_else(|| text.to_owned(), |text| format!("{text}a"));
    let found = match format {
        "dns1123Label" => names::dns_label(text),
        "dns1123Subdomain" => names::dns_subdomain(text),
        "dns1035Label" => names::dns_1035_label(text),
        "dns1123LabelPrefix" => names::dns_label(&prefix()),
        "dns1123SubdomainPrefix" => names::dns_subdomain(&prefix()),
        "dns1035LabelPrefix" => names::dns_1035_label(&prefix()),
        "qualifiedName" => names::qualified_name(text),
        "labelValue" => names::label_value(text),
        _ if schemas::is_valid(format, text) => Vec::new(),
        "uri" => vec!["invalid URI".into()],
        "uuid" => vec!["does not match the UUID format".into()],
        "byte" => vec!["invalid base64".into()],
        "date" => vec!["invalid date".into()],
        _ => vec!["invalid datetime".into()],
    };
    match found.is_empty() {
        true => Val::NONE,
        false => Val::some(Val::list(found.into_iter().map(Val::text).collect())),
    }
}
