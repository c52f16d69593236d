//! Validates strings with special rules: keys, ports, variables, headers, percentages.
//!
//! Each rule returns v1.34's complaints; none means that the string is valid.

use crate::names::Messages;

const CONFIG_KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
const ENV_NAME: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";
const HEADER_NAME: &str = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')";
const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";
const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')";

const WILDCARD: &str = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";

/// Validates a key in a ConfigMap or Secret.
pub fn config_key(key: &str) -> Messages {
    let mut complaints = Messages::new();
    if key.len() > 253 {
        complaints.push("must be no more than 253 characters".into());
    }
    let fine = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    if key.is_empty() || !key.bytes().all(fine) {
        complaints.push(CONFIG_KEY.into());
    }
    match key {
        "." | ".." => complaints.push(format!("must not be '{key}'")),
        _ if key.starts_with("..") => complaints.push("must not start with '..'".into()),
        _ => {}
    }
    complaints
}

/// Validates a port name: an IANA service name.
pub fn port_name(name: &str) -> Messages {
    let mut complaints = Messages::new();
    if name.len() > 15 {
        complaints.push("must be no more than 15 characters".into());
    }
    let fine = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if name.is_empty() || !name.bytes().all(fine) {
        complaints.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !name.bytes().any(|b| b.is_ascii_lowercase()) {
        complaints.push("must contain at least one letter (a-z)".into());
    }
    if name.contains("--") {
        complaints.push("must not contain consecutive hyphens".into());
    }
    if name.starts_with('-') || name.ends_with('-') {
        complaints.push("must not begin or end with a hyphen".into());
    }
    complaints
}

/// Validates the name of an environment variable.
pub fn env_name(name: &str) -> Messages {
    let mut complaints = Messages::new();
    if name.is_empty() {
        complaints.push("environment variable name must be non-empty".into());
    }
    if !name.bytes().all(|b| (b' '..=b'~').contains(&b) && b != b'=') {
        complaints.push(ENV_NAME.into());
    }
    complaints
}

pub fn header_name(name: &str) -> Messages {
    let fine = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    if fine { Messages::new() } else { vec![HEADER_NAME.into()] }
}

/// Validates a percentage: `25%`.
pub fn percent(text: &str) -> Messages {
    if percent_value(text).is_some() { Messages::new() } else { vec![PERCENT.into()] }
}

/// Validates a DNS subdomain with `*` as its first label.
pub fn wildcard_subdomain(name: &str) -> Messages {
    let mut complaints = Messages::new();
    if name.len() > 253 {
        complaints.push("must be no more than 253 characters".into());
    }
    let rest = name.strip_prefix("*.");
    if !rest.is_some_and(|rest| rest.split('.').all(is_label)) {
        complaints.push(WILDCARD.into());
    }
    complaints
}

fn is_label(label: &str) -> bool {
    !label.contains('_') && is_label_with_underscores(label)
}

/// Returns the number in a percentage.
pub fn percent_value(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().unwrap_or(i64::MAX))
}

/// Validates a DNS subdomain whose labels may contain underscores, as in search domains.
pub fn subdomain_with_underscores(name: &str) -> Messages {
    let mut complaints = Messages::new();
    if name.len() > 253 {
        complaints.push("must be no more than 253 characters".into());
    }
    if !name.split('.').all(is_label_with_underscores) {
        complaints.push(SUBDOMAIN.into());
    }
    complaints
}

fn is_label_with_underscores(label: &str) -> bool {
    let label = label.strip_prefix('_').unwrap_or(label);
    let end = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = label.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if end(*first) && end(*last))
        && bytes.iter().all(|b| end(*b) || b"-_".contains(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_percentages_are_validated() {
        type Rule = fn(&str) -> Messages;
        let rows: &[(Rule, &str, usize)] = &[
            (config_key, "a.B_c-1", 0),
            (config_key, "", 1),
            (config_key, "a b", 1),
            (config_key, ".", 1),
            (config_key, "..x", 1),
            (config_key, "../x", 2),
            (port_name, "http", 0),
            (port_name, "8080", 1),
            (port_name, "Http", 1),
            (port_name, "a--b", 1),
            (port_name, "-a", 1),
            (port_name, "abcdefghijklmnop", 1),
            (env_name, "A.b-c 1", 0),
            (env_name, "", 1),
            (env_name, "a=b", 1),
            (env_name, "é", 1),
            (header_name, "X-A", 0),
            (header_name, "X_A", 1),
            (percent, "25%", 0),
            (percent, "%", 1),
            (percent, "25", 1),
            (subdomain_with_underscores, "_a.b_c", 0),
            (subdomain_with_underscores, "a_", 1),
            (subdomain_with_underscores, "", 1),
        ];
        for (rule, word, complaints) in rows {
            assert_eq!(rule(word).len(), *complaints, "{word:?}");
        }
    }
}
