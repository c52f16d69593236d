//! Compressed responses. As in v1.34, every call offers gzip, and some servers compress whether it is offered or not.

use std::io::Read;

use bytes::Bytes;
use flate2::read::MultiGzDecoder;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, HeaderValue};

pub(crate) const OFFERED: HeaderValue = HeaderValue::from_static("gzip");

/// Why a body cannot be decompressed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// It is longer than the limit.
    TooLong,
    /// In Go's words.
    Invalid(&'static str),
}

/// Returns the body of a response, decompressed if it is compressed. `limit` bounds the result.
pub(crate) fn decompressed(headers: &HeaderMap, body: Bytes, limit: usize) -> Result<Bytes, Unreadable> {
    let encoding = headers.get(CONTENT_ENCODING);
    let is_compressed = encoding.is_some_and(|encoding| encoding.as_bytes().eq_ignore_ascii_case(b"gzip"));
    if !is_compressed || body.is_empty() {
        return Ok(body);
    }
    let mut content = Vec::new();
    let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = MultiGzDecoder::new(&*body).take(most).read_to_end(&mut content);
    match read {
        Ok(count) if count > limit => Err(Unreadable::TooLong),
        Ok(_) => Ok(content.into()),
        Err(why) => Err(Unreadable::Invalid(go_text(&why))),
    }
}

fn go_text(why: &std::io::Error) -> &'static str {
    match why.to_string().as_str() {
        "invalid gzip header" => "gzip: invalid header",
        "corrupt gzip stream does not have a matching checksum" => "gzip: invalid checksum",
        _ if why.kind() == std::io::ErrorKind::UnexpectedEof => "unexpected EOF",
        // Go also tells at which byte, which this decoder does not.
        _ => "flate: corrupt input",
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    fn read(encoding: &'static str, body: impl Into<Bytes>) -> Result<Bytes, Unreadable> {
        let headers = HeaderMap::from_iter([(CONTENT_ENCODING, HeaderValue::from_static(encoding))]);
        decompressed(&headers, body.into(), 1000)
    }

    #[test]
    fn a_body_is_read_as_go_reads_it() {
        let text = b"{\"a\": \"long enough\"}";
        let twice = [compressed(b"{\"a\": "), compressed(b"\"long enough\"}")].concat();
        let cut = compressed(text)[..12].to_vec();
        let mut wrong = compressed(text);
        *wrong.last_mut().unwrap() ^= 1;
        for (encoding, body, expected) in [
            ("gzip", compressed(text), Ok(&text[..])),
            ("GZip", compressed(text), Ok(text)),
            ("gzip", twice, Ok(text)),
            ("identity", text.to_vec(), Ok(text)),
            ("deflate", text.to_vec(), Ok(text)),
            ("gzip", Vec::new(), Ok(b"")),
            ("gzip", text.to_vec(), Err(Unreadable::Invalid("gzip: invalid header"))),
            (
                "gzip",
                [compressed(text), text.to_vec()].concat(),
                Err(Unreadable::Invalid("gzip: invalid header")),
            ),
            ("gzip", wrong, Err(Unreadable::Invalid("gzip: invalid checksum"))),
            ("gzip", b"{}".to_vec(), Err(Unreadable::Invalid("unexpected EOF"))),
            ("gzip", cut, Err(Unreadable::Invalid("unexpected EOF"))),
        ] {
            assert_eq!(read(encoding, body).as_deref(), expected.as_ref().map(|text| *text), "{encoding}");
        }
        assert_eq!(decompressed(&HeaderMap::new(), Bytes::from_static(text), 1000).as_deref(), Ok(&text[..]));
    }

    #[test]
    fn what_a_body_expands_to_is_bounded() {
        assert_eq!(read("gzip", compressed(&[b' '; 1000])).map(|text| text.len()), Ok(1000));
        assert_eq!(read("gzip", compressed(&vec![b' '; 100_000_000])), Err(Unreadable::TooLong));
    }
}
