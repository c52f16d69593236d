//! Compresses long responses for clients that accept it, as v1.34 does.

use std::io::Write;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::StreamExt;
use futures::stream::BoxStream;
use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, VARY};
use http::{HeaderMap, HeaderValue, Response};

use crate::body::Body;
use crate::header;

/// Shorter responses are not compressed: 128 KiB, as in v1.34.
const THRESHOLD: u64 = 128 << 10;

/// The fastest level, as in v1.34: higher ones gain little.
const LEVEL: Compression = Compression::new(1);

/// Bytes to compress before yielding: about a millisecond's work.
const CHUNK_BYTES: usize = 128 << 10;

/// Compresses a response if it is long and the client accepts it. Does not apply to watches: they never end.
pub(crate) fn respond(headers: &HeaderMap, response: Response<Body>) -> Response<Body> {
    let is_long = response.body().length().is_none_or(|length| length > THRESHOLD);
    if !is_long || !accepts_gzip(headers) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.append(VARY, HeaderValue::from_static("Accept-Encoding"));
    Response::from_parts(parts, Body::stream(compressed(body.into_pieces(CHUNK_BYTES)), None))
}

/// Whether the header lists gzip; weights are ignored.
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let header = header::text(headers, &ACCEPT_ENCODING);
    header.split(',').any(|word| word.trim() == "gzip")
}

fn compressed(pieces: BoxStream<'static, Bytes>) -> impl futures::Stream<Item = Bytes> + Send {
    let encoder = GzEncoder::new(Vec::new(), LEVEL);
    futures::stream::unfold(Some((pieces, encoder)), |state| async {
        let (mut pieces, mut encoder) = state?;
        loop {
            let Some(piece) = pieces.next().await else {
                let rest = encoder.finish().unwrap_or_default();
                return Some((Bytes::from(rest), None));
            };
            encoder.write_all(&piece).expect("writing into memory succeeds");
            let written = std::mem::take(encoder.get_mut());
            if !written.is_empty() {
                return Some((written.into(), Some((pieces, encoder))));
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn asking(accept: &str) -> HeaderMap {
        HeaderMap::from_iter([(ACCEPT_ENCODING, accept.parse().unwrap())])
    }

    #[tokio::test]
    async fn a_long_answer_is_the_same_once_it_is_read() {
        let text: String = (0..60_000).map(|number| number.to_string()).collect();
        let response = respond(&asking("deflate, gzip"), Response::new(Body::full(text.clone())));
        assert_eq!(response.headers()[CONTENT_ENCODING], "gzip");
        assert_eq!(response.headers()[VARY], "Accept-Encoding");
        let bytes = response.into_body().collect().await;
        assert!(bytes.len() < text.len() / 2, "{}", bytes.len());
        let mut read = String::new();
        flate2::read::GzDecoder::new(&*bytes).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }

    #[test]
    fn short_responses_and_other_clients_are_not_compressed() {
        let long = || "x".repeat(THRESHOLD as usize + 1);
        for (accept, body, expected) in [
            ("gzip", long(), true),
            ("gzip", "x".repeat(THRESHOLD as usize), false),
            ("br", long(), false),
            ("gzip;q=0.5", long(), false),
            ("", long(), false),
        ] {
            let response = respond(&asking(accept), Response::new(Body::full(body)));
            assert_eq!(response.headers().contains_key(CONTENT_ENCODING), expected, "{accept}");
        }
    }
}
