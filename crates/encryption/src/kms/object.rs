//! The stored format: limits that plugins must obey, and the cache key of a data key.

use sha2::{Digest, Sha256};

use super::messages::{DekSourceType, EncryptedObject};
use crate::TransformError;

const MAX_ANNOTATIONS: usize = 32 << 10;
const MAX_KEY_ID: usize = 1 << 10;
const MAX_DEK_SOURCE: usize = 1 << 10;

/// Validates a key ID. An error has its name in metrics and its message.
pub(crate) fn validate_key_id(id: &str) -> Result<(), (&'static str, String)> {
    match id.len() {
        0 => Err(("empty", "keyID is empty".into())),
        length if length > MAX_KEY_ID => {
            Err(("too_long", format!("keyID is {length} bytes, which exceeds the max size of {MAX_KEY_ID}")))
        }
        _ => Ok(()),
    }
}

impl EncryptedObject {
    pub(crate) fn validate(&self) -> Result<(), TransformError> {
        if self.encrypted_data.is_empty() {
            self.source_type()?;
            return Err(TransformError::new("encrypted data is empty"));
        }
        self.validate_source()
    }

    /// Validates everything but the data.
    pub(crate) fn validate_source(&self) -> Result<(), TransformError> {
        self.source_type()?;
        let source = match self.encrypted_dek_source.len() {
            0 => Err("encrypted DEK source is empty".to_owned()),
            length if length > MAX_DEK_SOURCE => Err(format!(
                "encrypted DEK source is {length} bytes, which exceeds the max size of {MAX_DEK_SOURCE}"
            )),
            _ => Ok(()),
        };
        let failed = |what: &str, why| TransformError::new(format!("failed to validate {what}: {why}"));
        source.map_err(|why| failed("encrypted DEK source", why))?;
        validate_key_id(&self.key_id).map_err(|(_, why)| failed("key id", why))?;
        self.validate_annotations().map_err(|why| failed("annotations", why))
    }

    pub(crate) fn source_type(&self) -> Result<DekSourceType, TransformError> {
        DekSourceType::try_from(self.encrypted_dek_source_type).map_err(|_| {
            TransformError::new(format!("unknown encryptedDEKSourceType: {}", self.encrypted_dek_source_type))
        })
    }

    fn validate_annotations(&self) -> Result<(), String> {
        let mut problems: Vec<String> =
            self.annotations.keys().filter_map(|key| problem_of_domain(key)).collect();
        let size: usize = self.annotations.iter().map(|(key, value)| key.len() + value.len()).sum();
        if size > MAX_ANNOTATIONS {
            problems.push(format!(
                "total size of annotations is {size}, which exceeds the max size of {MAX_ANNOTATIONS}"
            ));
        }
        match problems.len() {
            0 => Ok(()),
            1 => Err(problems.swap_remove(0)),
            _ => Err(format!("[{}]", problems.join(", "))),
        }
    }

    /// Returns the key under which the decrypted DEK source is cached: a hash of everything that determines it, each
    /// part with its length.
    pub(crate) fn cache_key(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        };
        add(&self.encrypted_dek_source_type.to_be_bytes());
        add(&self.encrypted_dek_source);
        add(self.key_id.as_bytes());
        for (key, value) in &self.annotations {
            add(key.as_bytes());
            add(value);
        }
        hash.finalize().into()
    }
}

/// Validates an annotation key, which must be a domain name with at least two labels.
fn problem_of_domain(name: &str) -> Option<String> {
    let invalid = |value: &str, why: &str| Some(format!("annotations: Invalid value: {value:?}: {why}"));
    if name.is_empty() {
        return Some("annotations: Required value".into());
    }
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_edge = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.first().is_some_and(is_edge)
            && bytes.last().is_some_and(is_edge)
            && bytes.iter().all(|byte| is_edge(byte) || *byte == b'-')
    };
    if name.len() > 253 {
        return invalid(name, "must be no more than 253 bytes");
    }
    if !name.split('.').all(is_label) {
        return invalid(
            name,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        );
    }
    if !name.contains('.') {
        return invalid(name, "should be a domain with at least two segments separated by dots");
    }
    let long = name.split('.').find(|label| label.len() > 63)?;
    invalid(long, "must be no more than 63 bytes")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> EncryptedObject {
        EncryptedObject {
            encrypted_data: vec![1],
            key_id: "1".into(),
            encrypted_dek_source: vec![2],
            annotations: [("kms.example.com".to_owned(), b"x".to_vec())].into(),
            encrypted_dek_source_type: 1,
        }
    }

    #[test]
    fn plugin_responses_are_validated_as_in_v1_34() {
        assert!(object().validate().is_ok());
        let check = |object: EncryptedObject, expected: &str| {
            assert_eq!(object.validate().unwrap_err().to_string(), expected);
        };
        check(
            EncryptedObject { encrypted_dek_source_type: 7, ..object() },
            "unknown encryptedDEKSourceType: 7",
        );
        check(EncryptedObject { encrypted_data: vec![], ..object() }, "encrypted data is empty");
        check(
            EncryptedObject { encrypted_dek_source: vec![], ..object() },
            "failed to validate encrypted DEK source: encrypted DEK source is empty",
        );
        check(
            EncryptedObject { encrypted_dek_source: vec![0; 1025], ..object() },
            "failed to validate encrypted DEK source: encrypted DEK source is 1025 bytes, which exceeds the max size of \
             1024",
        );
        check(EncryptedObject { key_id: "".into(), ..object() }, "failed to validate key id: keyID is empty");
        check(
            EncryptedObject { key_id: "x".repeat(1025), ..object() },
            "failed to validate key id: keyID is 1025 bytes, which exceeds the max size of 1024",
        );
        check(
            EncryptedObject { annotations: [("x".to_owned(), vec![])].into(), ..object() },
            "failed to validate annotations: annotations: Invalid value: \"x\": should be a domain with at least two \
             segments separated by dots",
        );
        check(
            EncryptedObject { annotations: [("a.b".to_owned(), vec![0; 32 << 10])].into(), ..object() },
            "failed to validate annotations: total size of annotations is 32771, which exceeds the max size of 32768",
        );
    }

    #[test]
    fn objects_with_different_sources_have_different_cache_keys() {
        let keys = [
            object(),
            EncryptedObject { key_id: "2".into(), ..object() },
            EncryptedObject { encrypted_dek_source_type: 0, ..object() },
            EncryptedObject {
                annotations: [("kms.example.com".to_owned(), b"y".to_vec())].into(),
                ..object()
            },
            EncryptedObject { annotations: [].into(), ..object() },
        ]
        .map(|object| object.cache_key());
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(object().cache_key(), EncryptedObject { encrypted_data: vec![9], ..object() }.cache_key());
    }
}
