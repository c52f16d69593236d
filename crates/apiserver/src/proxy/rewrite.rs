//! Rewrites streamed HTML responses, compressed ones too.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::Compression;
use flate2::write::{DeflateDecoder, DeflateEncoder, GzEncoder, MultiGzDecoder};
use futures::StreamExt;
use http_body::Frame;

use super::html::Page;
use crate::body::{Aborted, Frames};

/// How much compressed data is decompressed at once. The output is at most a thousand times as large.
const COMPRESSED_BYTES: usize = 1 << 10;

/// Rewrites a page. Returns the frames unchanged if their encoding is unknown, as in v1.34.
pub(super) fn rewritten(frames: Frames, encoding: &str, page: Page) -> Frames {
    let level = Compression::default();
    let part_bytes = if encoding.is_empty() { usize::MAX } else { COMPRESSED_BYTES };
    let coding: Box<dyn Coding> = match encoding {
        "" => Box::new(Plain),
        "gzip" => Box::new(Compressed(MultiGzDecoder::new(Vec::new()), GzEncoder::new(Vec::new(), level))),
        // As in v1.34, without zlib's header.
        "deflate" => {
            Box::new(Compressed(DeflateDecoder::new(Vec::new()), DeflateEncoder::new(Vec::new(), level)))
        }
        encoding => {
            tracing::debug!(encoding, "an HTML page has an unknown encoding: its links are not rewritten");
            return frames;
        }
    };
    let state = Some(Rewriting { frames, page, coding, part_bytes, rest: Bytes::new() });
    futures::stream::unfold(state, |state| async { Some(state?.step().await) }).boxed()
}

struct Rewriting {
    frames: Frames,
    page: Page,
    coding: Box<dyn Coding>,
    /// How much is processed at once.
    part_bytes: usize,
    /// Received but not yet processed data.
    rest: Bytes,
}

impl Rewriting {
    /// Returns the next frame and the remaining work.
    async fn step(mut self) -> (Result<Frame<Bytes>, Aborted>, Option<Self>) {
        loop {
            if self.rest.is_empty() {
                self.rest = match self.frames.next().await.map(|frame| frame.map(Frame::into_data)) {
                    Some(Ok(Ok(piece))) => piece,
                    // Trailers describe the page before it was rewritten.
                    None | Some(Ok(Err(_))) => return (self.finish(), None),
                    Some(Err(aborted)) => return (Err(aborted), None),
                };
            } else {
                // A part may decompress to a mebibyte. Yields to other tasks before the next one.
                tokio::task::yield_now().await;
            }
            let part = self.rest.split_to(self.rest.len().min(self.part_bytes));
            match self.coding.push(&part, &mut self.page) {
                // The encoder has not filled a block yet.
                Ok(rewritten) if rewritten.is_empty() => {}
                Ok(rewritten) => return (Ok(Frame::data(rewritten.into())), Some(self)),
                Err(error) => {
                    tracing::debug!(%error, "cannot decompress an HTML page");
                    return (Err(Aborted::Source), None);
                }
            }
        }
    }

    fn finish(self) -> Result<Frame<Bytes>, Aborted> {
        let finished = self.coding.finish(self.page);
        finished.map(|rest| Frame::data(rest.into())).map_err(|_| Aborted::Source)
    }
}

/// How a page is encoded.
trait Coding: Send {
    /// Rewrites a piece of the page.
    fn push(&mut self, piece: &[u8], page: &mut Page) -> io::Result<Vec<u8>>;

    /// Rewrites the rest of it.
    fn finish(self: Box<Self>, page: Page) -> io::Result<Vec<u8>>;
}

struct Plain;

impl Coding for Plain {
    fn push(&mut self, piece: &[u8], page: &mut Page) -> io::Result<Vec<u8>> {
        Ok(page.push(piece))
    }

    fn finish(self: Box<Self>, page: Page) -> io::Result<Vec<u8>> {
        Ok(page.finish())
    }
}

/// A decoder and its encoder.
struct Compressed<D, E>(D, E);

impl<D: Codec, E: Codec> Coding for Compressed<D, E> {
    fn push(&mut self, piece: &[u8], page: &mut Page) -> io::Result<Vec<u8>> {
        let Self(decoder, encoder) = self;
        decoder.write_all(piece)?;
        encoder.write_all(&page.push(&std::mem::take(decoder.output())))?;
        Ok(std::mem::take(encoder.output()))
    }

    fn finish(self: Box<Self>, mut page: Page) -> io::Result<Vec<u8>> {
        let Self(decoder, mut encoder) = *self;
        encoder.write_all(&page.push(&decoder.end()?))?;
        encoder.write_all(&page.finish())?;
        encoder.end()
    }
}

/// The common interface of flate2's decoders and encoders.
trait Codec: Write + Send {
    fn output(&mut self) -> &mut Vec<u8>;

    /// Returns the remaining output.
    fn end(self) -> io::Result<Vec<u8>>;
}

impl Codec for MultiGzDecoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Codec for GzEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Codec for DeflateDecoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> io::Result<Vec<u8>> {
        self.finish()
    }
}

impl Codec for DeflateEncoder<Vec<u8>> {
    fn output(&mut self) -> &mut Vec<u8> {
        self.get_mut()
    }

    fn end(self) -> io::Result<Vec<u8>> {
        self.finish()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::read::{DeflateDecoder as ReadDeflate, MultiGzDecoder as ReadGzip};

    use super::*;

    async fn passed(encoding: &str, pieces: Vec<Vec<u8>>) -> Vec<u8> {
        let page = Page::new(Box::new(|url| Some(format!("/proxy{url}"))));
        let frames = futures::stream::iter(pieces).map(|piece| Ok(Frame::data(Bytes::from(piece)))).boxed();
        let frames = rewritten(frames, encoding, page);
        let pieces: Vec<Bytes> = frames.map(|frame| frame.unwrap().into_data().unwrap()).collect().await;
        pieces.concat()
    }

    #[tokio::test]
    async fn compressed_pages_are_rewritten_too() {
        let (text, expected) = (r#"<a href="/x">l</a>"#, r#"<a href="/proxy/x">l</a>"#);
        assert_eq!(passed("", vec![text.into()]).await, expected.as_bytes());
        assert_eq!(
            passed("br", vec![text.into()]).await,
            text.as_bytes(),
            "unknown encodings pass unchanged"
        );
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(text.as_bytes()).unwrap();
        let pieces = gzip.finish().unwrap().chunks(7).map(<[u8]>::to_vec).collect();
        let mut read = String::new();
        ReadGzip::new(&*passed("gzip", pieces).await).read_to_string(&mut read).unwrap();
        assert_eq!(read, expected);
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::fast());
        deflate.write_all(text.as_bytes()).unwrap();
        let pieces = deflate.finish().unwrap().chunks(5).map(<[u8]>::to_vec).collect();
        let mut read = String::new();
        ReadDeflate::new(&*passed("deflate", pieces).await).read_to_string(&mut read).unwrap();
        assert_eq!(read, expected);
    }

    #[tokio::test]
    async fn decompressing_a_large_page_yields_to_other_tasks() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::best());
        let size = 8 << 20;
        gzip.write_all(&vec![b' '; size]).unwrap();
        let bomb = gzip.finish().unwrap();
        let parts = bomb.len() / COMPRESSED_BYTES;
        assert!(parts >= 4, "{parts}");
        let page = Page::new(Box::new(|_| None));
        let frames = futures::stream::iter([Ok(Frame::data(Bytes::from(bomb)))]).boxed();
        let mut frames = rewritten(frames, "gzip", page);
        let (mut turns, mut received) = (0, Vec::new());
        loop {
            match futures::poll!(frames.next()) {
                std::task::Poll::Pending => {
                    turns += 1;
                    tokio::task::yield_now().await;
                }
                std::task::Poll::Ready(None) => break,
                std::task::Poll::Ready(Some(frame)) => {
                    received.extend_from_slice(&frame.unwrap().into_data().unwrap());
                }
            }
        }
        assert!(turns >= parts, "{turns} turns for {parts} parts");
        let mut read = Vec::new();
        ReadGzip::new(&*received).read_to_end(&mut read).unwrap();
        assert_eq!(read.len(), size);
    }

    #[tokio::test]
    async fn an_invalid_compressed_page_is_cut_off() {
        let page = Page::new(Box::new(|_| None));
        let frames = futures::stream::iter([Ok(Frame::data(Bytes::from_static(b"not gzip at all")))]).boxed();
        let frames: Vec<_> = rewritten(frames, "gzip", page).collect().await;
        assert!(matches!(frames.as_slice(), [Err(Aborted::Source)]));
    }
}
