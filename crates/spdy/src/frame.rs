//! Frames: their encoding, and a decoder that takes data frames apart as they arrive.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::Error;
use crate::headers::Headers;
use crate::zlib::{Deflate, Inflate};

const VERSION: u16 = 3;
const CONTROL: u16 = 0x8000;
/// The part of every frame that says how long it is.
const HEAD_BYTES: usize = 8;
/// Maximum size of a control frame. A block of headers has at most 64 KiB even when decompressed.
const CONTROL_BYTES: usize = 64 << 10;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

const FIN: u8 = 1;
const UNIDIRECTIONAL: u8 = 2;

/// The number of a stream: 31 bits.
pub(crate) type StreamId = u32;
pub(crate) const MAX_STREAM: StreamId = 0x7fff_ffff;

/// The settings that mean something to this side.
pub(crate) const MAX_CONCURRENT_STREAMS: u32 = 4;
pub(crate) const INITIAL_WINDOW_SIZE: u32 = 7;

/// Why a stream was reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetStatus(pub u32);

impl ResetStatus {
    pub const PROTOCOL_ERROR: Self = Self(1);
    pub const REFUSED_STREAM: Self = Self(3);
    pub const CANCEL: Self = Self(5);
    pub const INTERNAL_ERROR: Self = Self(6);
}

/// A control frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Frame {
    SynStream {
        stream: StreamId,
        headers: Headers,
        is_last: bool,
        is_one_way: bool,
    },
    SynReply {
        stream: StreamId,
        headers: Headers,
        is_last: bool,
    },
    Reset {
        stream: StreamId,
        status: ResetStatus,
    },
    /// Pairs of an id and a value.
    Settings(Vec<(u32, u32)>),
    Ping(u32),
    GoAway {
        last_stream: StreamId,
        status: u32,
    },
    Headers {
        stream: StreamId,
        headers: Headers,
        is_last: bool,
    },
    WindowUpdate {
        stream: StreamId,
        delta: u32,
    },
}

/// What the decoder has found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Control(Frame),
    /// A part of a data frame.
    Data {
        stream: StreamId,
        data: Bytes,
        is_last: bool,
    },
}

impl Frame {
    /// Encodes the frame. Headers are compressed, so frames must be encoded in the order in which they are sent.
    pub(crate) fn encode(&self, deflate: &mut Deflate, into: &mut BytesMut) {
        let mut body = BytesMut::new();
        let (kind, flags) = self.encode_body(deflate, &mut body);
        into.put_u16(CONTROL | VERSION);
        into.put_u16(kind);
        put_flags_and_length(flags, body.len(), into);
        into.extend_from_slice(&body);
    }

    fn encode_body(&self, deflate: &mut Deflate, body: &mut BytesMut) -> (u16, u8) {
        match self {
            Self::SynStream { stream, headers, is_last, is_one_way } => {
                body.put_u32(*stream);
                // No associated stream, the highest priority, no credential slot.
                body.put_bytes(0, 6);
                body.extend_from_slice(&deflate.block(&headers.encode()));
                let one_way = if *is_one_way { UNIDIRECTIONAL } else { 0 };
                (SYN_STREAM, fin(*is_last) | one_way)
            }
            Self::SynReply { stream, headers, is_last } => {
                body.put_u32(*stream);
                body.extend_from_slice(&deflate.block(&headers.encode()));
                (SYN_REPLY, fin(*is_last))
            }
            Self::Headers { stream, headers, is_last } => {
                body.put_u32(*stream);
                body.extend_from_slice(&deflate.block(&headers.encode()));
                (HEADERS, fin(*is_last))
            }
            Self::Reset { stream, status } => put_pair(RST_STREAM, *stream, status.0, body),
            Self::GoAway { last_stream, status } => put_pair(GOAWAY, *last_stream, *status, body),
            Self::WindowUpdate { stream, delta } => put_pair(WINDOW_UPDATE, *stream, *delta, body),
            Self::Ping(id) => {
                body.put_u32(*id);
                (PING, 0)
            }
            Self::Settings(settings) => {
                body.put_u32(u32::try_from(settings.len()).unwrap_or(u32::MAX));
                for (id, value) in settings {
                    body.put_u32(id & 0x00ff_ffff);
                    body.put_u32(*value);
                }
                (SETTINGS, 0)
            }
        }
    }
}

fn fin(is_last: bool) -> u8 {
    if is_last { FIN } else { 0 }
}

fn put_pair(kind: u16, first: u32, second: u32, body: &mut BytesMut) -> (u16, u8) {
    body.put_u32(first);
    body.put_u32(second);
    (kind, 0)
}

fn put_flags_and_length(flags: u8, length: usize, into: &mut BytesMut) {
    into.put_u8(flags);
    // This side sends no frame of 16 MiB.
    into.put_uint(length as u64 & 0x00ff_ffff, 3);
}

/// Encodes the head of a data frame.
pub(crate) fn encode_data_head(stream: StreamId, length: usize, is_last: bool, into: &mut BytesMut) {
    into.put_u32(stream & MAX_STREAM);
    put_flags_and_length(fin(is_last), length, into);
}

/// Finds frames in received bytes.
#[derive(Default)]
pub(crate) struct Decoder {
    inflate: Inflate,
    /// The data frame that is being received, and how much of it is to come.
    data: Option<(StreamId, usize, bool)>,
}

impl Decoder {
    /// Returns the next frame, or the next part of one; `None` if that takes more bytes.
    pub(crate) fn next(&mut self, bytes: &mut BytesMut) -> Result<Option<Event>, Error> {
        if self.data.is_some() {
            return Ok(self.next_data(bytes));
        }
        let Some(head) = bytes.first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let [a, b, c, d, flags, high, middle, low] = *head;
        let (word, flags) = (u32::from_be_bytes([a, b, c, d]), flags);
        let length = u32::from_be_bytes([0, high, middle, low]) as usize;
        if a & 0x80 == 0 {
            if word == 0 {
                return Err(Error::Protocol("data of stream 0"));
            }
            bytes.advance(HEAD_BYTES);
            self.data = Some((word, length, flags & FIN != 0));
            return Ok(self.next_data(bytes));
        }
        if word >> 16 != u32::from(CONTROL | VERSION) {
            return Err(Error::Protocol("a frame of another version"));
        }
        if length > CONTROL_BYTES {
            return Err(Error::Protocol("a control frame that is too long"));
        }
        if bytes.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        bytes.advance(HEAD_BYTES);
        let body = bytes.split_to(length);
        let frame = self.control(u16::from_be_bytes([c, d]), flags, &body)?;
        Ok(Some(Event::Control(frame)))
    }

    fn next_data(&mut self, bytes: &mut BytesMut) -> Option<Event> {
        let (stream, left, is_last) = self.data.take()?;
        let data = bytes.split_to(left.min(bytes.len())).freeze();
        let left = left - data.len();
        if left > 0 {
            self.data = Some((stream, left, is_last));
            if data.is_empty() {
                return None;
            }
        }
        Some(Event::Data { stream, data, is_last: is_last && left == 0 })
    }

    fn control(&mut self, kind: u16, flags: u8, body: &[u8]) -> Result<Frame, Error> {
        let is_last = flags & FIN != 0;
        match kind {
            SYN_STREAM => {
                let (stream, rest) = stream_of(body)?;
                let block = rest.get(6..).ok_or(TRUNCATED)?;
                let is_one_way = flags & UNIDIRECTIONAL != 0;
                Ok(Frame::SynStream { stream, headers: self.headers(block)?, is_last, is_one_way })
            }
            SYN_REPLY => {
                let (stream, block) = stream_of(body)?;
                Ok(Frame::SynReply { stream, headers: self.headers(block)?, is_last })
            }
            HEADERS => {
                let (stream, block) = stream_of(body)?;
                Ok(Frame::Headers { stream, headers: self.headers(block)?, is_last })
            }
            RST_STREAM => {
                let (stream, rest) = stream_of(body)?;
                Ok(Frame::Reset { stream, status: ResetStatus(only_number(rest)?) })
            }
            SETTINGS => settings(body),
            PING => Ok(Frame::Ping(only_number(body)?)),
            GOAWAY => {
                let (last_stream, rest) = number(body)?;
                Ok(Frame::GoAway { last_stream: last_stream & MAX_STREAM, status: only_number(rest)? })
            }
            WINDOW_UPDATE => {
                let (stream, rest) = number(body)?;
                Ok(Frame::WindowUpdate {
                    stream: stream & MAX_STREAM,
                    delta: only_number(rest)? & MAX_STREAM,
                })
            }
            _ => Err(Error::Protocol("an unknown control frame")),
        }
    }

    fn headers(&mut self, block: &[u8]) -> Result<Headers, Error> {
        Headers::decode(&self.inflate.block(block)?)
    }
}

fn settings(body: &[u8]) -> Result<Frame, Error> {
    let (count, rest) = number(body)?;
    if rest.len() / 8 != count as usize || !rest.len().is_multiple_of(8) {
        return Err(Error::Protocol("settings of another length"));
    }
    let pairs = rest.chunks_exact(8).map(|pair| {
        let (id, value) = (number(pair)?.0, number(&pair[4..])?.0);
        Ok((id & 0x00ff_ffff, value))
    });
    Ok(Frame::Settings(pairs.collect::<Result<_, Error>>()?))
}

const TRUNCATED: Error = Error::Protocol("a truncated control frame");

fn number(body: &[u8]) -> Result<(u32, &[u8]), Error> {
    let (number, rest) = body.split_first_chunk().ok_or(TRUNCATED)?;
    Ok((u32::from_be_bytes(*number), rest))
}

/// Reads a number that ends the frame.
fn only_number(body: &[u8]) -> Result<u32, Error> {
    match number(body)? {
        (number, []) => Ok(number),
        _ => Err(Error::Protocol("a control frame of another length")),
    }
}

fn stream_of(body: &[u8]) -> Result<(StreamId, &[u8]), Error> {
    match number(body)? {
        (stream, rest) if stream & MAX_STREAM != 0 => Ok((stream & MAX_STREAM, rest)),
        _ => Err(Error::Protocol("stream 0")),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_headers() -> impl Strategy<Value = Headers> {
        let pairs = prop::collection::vec(("[a-z]{1,9}", "[a-z0-9]{0,9}"), 0..4);
        pairs.prop_map(|pairs| {
            pairs.iter().fold(Headers::new(), |all, (name, value)| all.with(name, value.as_str()))
        })
    }

    fn any_frame() -> impl Strategy<Value = Frame> {
        let stream = 1..=MAX_STREAM;
        prop_oneof![
            (stream.clone(), any_headers(), any::<bool>(), any::<bool>()).prop_map(
                |(stream, headers, is_last, is_one_way)| Frame::SynStream {
                    stream,
                    headers,
                    is_last,
                    is_one_way
                }
            ),
            (stream.clone(), any_headers(), any::<bool>())
                .prop_map(|(stream, headers, is_last)| Frame::SynReply { stream, headers, is_last }),
            (stream.clone(), any_headers(), any::<bool>())
                .prop_map(|(stream, headers, is_last)| Frame::Headers { stream, headers, is_last }),
            (stream.clone(), any::<u32>())
                .prop_map(|(stream, status)| Frame::Reset { stream, status: ResetStatus(status) }),
            prop::collection::vec((0..1_u32 << 24, any::<u32>()), 0..4).prop_map(Frame::Settings),
            any::<u32>().prop_map(Frame::Ping),
            (stream.clone(), any::<u32>())
                .prop_map(|(last_stream, status)| Frame::GoAway { last_stream, status }),
            (stream, 0..=MAX_STREAM).prop_map(|(stream, delta)| Frame::WindowUpdate { stream, delta }),
        ]
    }

    proptest! {
        #[test]
        fn frames_are_read_as_they_were_written_however_they_are_cut(
            frames in prop::collection::vec(any_frame(), 1..9), cut in 1..64_usize,
        ) {
            let (mut deflate, mut sent) = (Deflate::default(), BytesMut::new());
            frames.iter().for_each(|frame| frame.encode(&mut deflate, &mut sent));
            let (mut decoder, mut bytes, mut read) = (Decoder::default(), BytesMut::new(), Vec::new());
            for piece in sent.chunks(cut) {
                bytes.extend_from_slice(piece);
                while let Some(Event::Control(frame)) = decoder.next(&mut bytes).unwrap() {
                    read.push(frame);
                }
            }
            prop_assert_eq!(read, frames);
        }

        #[test]
        fn data_arrives_in_parts_and_ends_once(length in 0..5000_usize, cut in 1..999_usize, is_last: bool) {
            let mut sent = BytesMut::new();
            encode_data_head(7, length, is_last, &mut sent);
            sent.put_bytes(b'x', length);
            let (mut decoder, mut bytes, mut received, mut ends) = (Decoder::default(), BytesMut::new(), 0, 0);
            for piece in sent.chunks(cut) {
                bytes.extend_from_slice(piece);
                while let Some(event) = decoder.next(&mut bytes).unwrap() {
                    let Event::Data { stream: 7, data, is_last } = event else { panic!("{event:?}") };
                    received += data.len();
                    ends += usize::from(is_last);
                }
            }
            prop_assert_eq!((received, ends), (length, usize::from(is_last)));
        }

        #[test]
        fn any_bytes_are_frames_or_an_error(mut bytes in prop::collection::vec(any::<u8>(), 0..600), as_control: bool) {
            if as_control && bytes.len() > 8 {
                let head = [0x80, 3, 0, bytes[3] % 10, bytes[4] % 4, 0, 0, (bytes.len() - 8) as u8];
                bytes[..8].copy_from_slice(&head);
            }
            let (mut decoder, mut bytes) = (Decoder::default(), BytesMut::from(&bytes[..]));
            while let Ok(Some(_)) = decoder.next(&mut bytes) {}
        }
    }

    #[test]
    fn a_length_is_checked_before_anything_is_kept() {
        let mut bytes = BytesMut::from(&[0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff][..]);
        assert!(Decoder::default().next(&mut bytes).is_err());
        let mut wrong_version = BytesMut::from(&[0x80, 2, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1][..]);
        assert!(Decoder::default().next(&mut wrong_version).is_err());
    }
}
