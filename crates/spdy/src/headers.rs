//! The headers of a stream, and their encoding.

use crate::error::Error;

/// Maximum number of headers of a stream. Kubernetes uses three.
const COUNT: usize = 256;

/// The headers that a stream is opened with. Names are lower case.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, String)>);

impl Headers {
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a header, or replaces the one of this name.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<String>) -> Self {
        let name = name.to_ascii_lowercase();
        self.0.retain(|(known, _)| *known != name);
        self.0.push((name, value.into()));
        self
    }

    /// The value of a header; the first one if it has several. Case does not matter.
    pub fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.split('\0').next().unwrap_or_default())
    }

    /// Names and values. Several values of one name are separated by NUL.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// The length of all names and values.
    pub(crate) fn bytes(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    /// Encodes the headers as an uncompressed block.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut block = length(self.0.len()).to_vec();
        for text in self.0.iter().flat_map(|(name, value)| [name, value]) {
            block.extend(length(text.len()));
            block.extend(text.bytes());
        }
        block
    }

    pub(crate) fn decode(mut block: &[u8]) -> Result<Self, Error> {
        let count = number(&mut block)?;
        if count > COUNT {
            return Err(Error::Protocol("too many headers"));
        }
        let mut headers = Self::default();
        for _ in 0..count {
            let (name, value) = (text(&mut block)?.to_ascii_lowercase(), text(&mut block)?);
            if headers.0.iter().any(|(known, _)| *known == name) {
                return Err(Error::Protocol("a header that occurs twice"));
            }
            headers.0.push((name, value));
        }
        if block.is_empty() { Ok(headers) } else { Err(Error::Protocol("bytes after the headers")) }
    }
}

/// Blocks are built by this side and are far below 4 GiB.
fn length(length: usize) -> [u8; 4] {
    u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes()
}

fn number(block: &mut &[u8]) -> Result<usize, Error> {
    let (number, rest) = block.split_first_chunk().ok_or(TRUNCATED)?;
    *block = rest;
    Ok(u32::from_be_bytes(*number) as usize)
}

fn text(block: &mut &[u8]) -> Result<String, Error> {
    let length = number(block)?;
    let (text, rest) = block.split_at_checked(length).ok_or(TRUNCATED)?;
    *block = rest;
    String::from_utf8(text.to_vec()).map_err(|_| Error::Protocol("a header that is not UTF-8"))
}

const TRUNCATED: Error = Error::Protocol("truncated headers");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        let headers = Headers::new().with("streamType", "stdin").with("port", "80").with("Port", "81");
        assert_eq!(headers.get("StreamType"), Some("stdin"));
        assert_eq!(headers.get("port"), Some("81"));
        assert_eq!(headers.get("x"), None);
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(pairs in prop::collection::vec(("[a-z-]{1,20}", ".{0,40}"), 0..20)) {
            let headers = pairs.iter().fold(Headers::new(), |headers, (name, value)| headers.with(name, value.as_str()));
            prop_assert_eq!(Headers::decode(&headers.encode()).unwrap(), headers);
        }

        #[test]
        fn any_bytes_are_headers_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            _ = Headers::decode(&bytes);
        }
    }
}
