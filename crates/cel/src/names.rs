//! Validation of names, label keys and label values.
//!
//! Each rule returns v1.34's error messages, or none if the text is valid.

const LABEL_LENGTH: usize = 63;
const SUBDOMAIN_LENGTH: usize = 253;

const QUALIFIED_NAME: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
     '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or \
     '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex \
     used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
const LABEL_1123: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and \
     must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const SUBDOMAIN_1123: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' \
     or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
     '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_1035: &str = "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an \
     alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
     validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

/// The error messages. Empty if the text is valid.
pub type Messages = Vec<String>;

fn too_long(limit: usize) -> String {
    format!("must be no more than {limit} characters")
}

fn is_dns_inner(byte: u8) -> bool {
    is_dns_end(byte) || byte == b'-'
}

fn is_dns_end(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

fn matches_label_1123(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last)) if is_dns_end(*first) && is_dns_end(*last))
        && bytes.iter().all(|byte| is_dns_inner(*byte))
}

fn matches_subdomain_1123(text: &str) -> bool {
    text.split('.').all(matches_label_1123)
}

fn matches_label_1035(text: &str) -> bool {
    matches_label_1123(text) && text.as_bytes()[0].is_ascii_lowercase()
}

fn matches_name_part(text: &str) -> bool {
    let bytes = text.as_bytes();
    matches!((bytes.first(), bytes.last()), (Some(first), Some(last))
        if first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

/// Validates a DNS label.
pub fn dns_label(text: &str) -> Messages {
    let mut complaints = Messages::new();
    if text.len() > LABEL_LENGTH {
        complaints.push(too_long(LABEL_LENGTH));
    }
    if !matches_label_1123(text) {
        let dots = matches_subdomain_1123(text);
        complaints.push(if dots { "must not contain dots".into() } else { LABEL_1123.into() });
    }
    complaints
}

/// Validates a DNS subdomain: labels separated by dots.
pub fn dns_subdomain(text: &str) -> Messages {
    let mut complaints = Messages::new();
    if text.len() > SUBDOMAIN_LENGTH {
        complaints.push(too_long(SUBDOMAIN_LENGTH));
    }
    if !matches_subdomain_1123(text) {
        complaints.push(SUBDOMAIN_1123.into());
    }
    complaints
}

/// Validates a DNS label that starts with a letter.
pub fn dns_1035_label(text: &str) -> Messages {
    let mut complaints = Messages::new();
    if text.len() > LABEL_LENGTH {
        complaints.push(too_long(LABEL_LENGTH));
    }
    if !matches_label_1035(text) {
        complaints.push(LABEL_1035.into());
    }
    complaints
}

/// Validates a path segment.
pub fn path_segment(text: &str) -> Messages {
    if text == "." || text == ".." {
        return vec![format!("may not be '{text}'")];
    }
    path_segment_prefix(text)
}

pub fn path_segment_prefix(text: &str) -> Messages {
    ['/', '%'].into_iter().filter(|c| text.contains(*c)).map(|c| format!("may not contain '{c}'")).collect()
}

/// Validates the key of a label, annotation or finalizer: a name with an optional DNS subdomain prefix.
pub fn qualified_name(text: &str) -> Messages {
    let mut complaints = Messages::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a qualified name {QUALIFIED_NAME} with an optional DNS subdomain prefix and '/' (e.g. \
                 'example.com/MyName')"
            )];
        }
        Some((prefix, name)) => {
            if prefix.is_empty() {
                complaints.push("prefix part must be non-empty".into());
            } else {
                complaints.extend(
                    dns_subdomain(prefix).into_iter().map(|message| format!("prefix part {message}")),
                );
            }
            name
        }
    };
    if name.is_empty() {
        complaints.push("name part must be non-empty".into());
    } else if name.len() > LABEL_LENGTH {
        complaints.push(format!("name part {}", too_long(LABEL_LENGTH)));
    }
    if !matches_name_part(name) {
        complaints.push(format!("name part {QUALIFIED_NAME}"));
    }
    complaints
}

/// Validates a label value.
pub fn label_value(text: &str) -> Messages {
    let mut complaints = Messages::new();
    if text.len() > LABEL_LENGTH {
        complaints.push(too_long(LABEL_LENGTH));
    }
    if !text.is_empty() && !matches_name_part(text) {
        complaints.push(LABEL_VALUE.into());
    }
    complaints
}
