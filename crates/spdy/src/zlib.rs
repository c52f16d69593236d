//! The compression of header blocks: one zlib stream per direction, which starts with SPDY/3's dictionary.
//!
//! Blocks are sent as stored (uncompressed) deflate blocks. Kubernetes' header blocks have some 60 bytes; a compressor
//! would hold about 300 KiB per connection to save half of that. Each block ends with an empty stored block, the marker
//! at which Go's decompressor hands out what it has.
//!
//! The decompressor gets the dictionary as a first stored block, whose output is thrown away: afterwards its window
//! holds what a preset dictionary would have put there. This works with every backend of flate2.

use flate2::{Decompress, FlushDecompress, Status};

use crate::error::Error;

/// Maximum size of a decompressed block.
const BLOCK_BYTES: usize = 64 << 10;
/// The Adler-32 checksum of the dictionary, by which a zlib stream refers to it.
const DICTIONARY_ID: u32 = 0xe3c6_a7c2;
/// Maximum size of a stored block.
const STORED_BYTES: usize = 0xffff;

/// The words of SPDY/3's dictionary that are preceded by their length.
const WORDS: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language \
    accept-ranges age allow authorization cache-control connection content-base content-encoding content-language \
    content-length content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
/// The rest of the dictionary.
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505203 \
    Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden404 \
    Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
    Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=\
    utf-8charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> Vec<u8> {
    let mut dictionary = Vec::new();
    for word in WORDS.split(' ') {
        dictionary.extend([0, 0, 0]);
        dictionary.extend(u8::try_from(word.len()));
        dictionary.extend(word.replace('_', " ").bytes());
    }
    dictionary.extend(TEXT.bytes());
    dictionary
}

/// Writes a stored block of at most [`STORED_BYTES`].
fn store(data: &[u8], into: &mut Vec<u8>) {
    let length = data.len() as u16;
    into.push(0);
    into.extend(length.to_le_bytes());
    into.extend((!length).to_le_bytes());
    into.extend(data);
}

/// The zlib stream of this side.
#[derive(Debug, Default)]
pub(crate) struct Deflate {
    is_started: bool,
}

impl Deflate {
    pub(crate) fn block(&mut self, headers: &[u8]) -> Vec<u8> {
        let mut block = Vec::with_capacity(headers.len() + 16);
        if !std::mem::replace(&mut self.is_started, true) {
            // Deflate with a window of 32 KiB, and the flag that a dictionary is used.
            block.extend([0x78, 0x20]);
            block.extend(DICTIONARY_ID.to_be_bytes());
        }
        headers.chunks(STORED_BYTES).for_each(|chunk| store(chunk, &mut block));
        store(&[], &mut block);
        block
    }
}

/// The zlib stream of the peer.
pub(crate) struct Inflate {
    stream: Decompress,
    is_started: bool,
}

impl Default for Inflate {
    fn default() -> Self {
        Self { stream: Decompress::new(false), is_started: false }
    }
}

impl Inflate {
    /// Decompresses a block of at most [`BLOCK_BYTES`].
    pub(crate) fn block(&mut self, compressed: &[u8]) -> Result<Vec<u8>, Error> {
        match std::mem::replace(&mut self.is_started, true) {
            true => self.inflate(compressed),
            false => {
                let rest = self.start(compressed)?;
                self.inflate(rest)
            }
        }
    }

    /// Reads the header of the zlib stream and returns what follows it.
    fn start<'b>(&mut self, block: &'b [u8]) -> Result<&'b [u8], Error> {
        let [method, flags, rest @ ..] = block else {
            return Err(Error::Protocol("a truncated zlib header"));
        };
        if method & 0x0f != 8 || u16::from_be_bytes([*method, *flags]) % 31 != 0 {
            return Err(Error::Protocol("a header block that is not a zlib stream"));
        }
        if flags & 0x20 == 0 {
            return Ok(rest);
        }
        let Some((id, rest)) = rest.split_first_chunk() else {
            return Err(Error::Protocol("a truncated zlib header"));
        };
        if u32::from_be_bytes(*id) != DICTIONARY_ID {
            return Err(Error::Protocol("an unknown zlib dictionary"));
        }
        let mut primer = Vec::new();
        store(&dictionary(), &mut primer);
        self.inflate(&primer)?;
        Ok(rest)
    }

    fn inflate(&mut self, mut compressed: &[u8]) -> Result<Vec<u8>, Error> {
        let malformed = Error::Protocol("a malformed compressed header block");
        // One byte more than is allowed, to notice what is too long.
        let mut block = Vec::with_capacity(compressed.len().saturating_mul(4).clamp(512, BLOCK_BYTES + 1));
        loop {
            let before = (self.stream.total_in(), self.stream.total_out());
            let status = self.stream.decompress_vec(compressed, &mut block, FlushDecompress::Sync);
            let Ok(Status::Ok | Status::BufError) = status else { return Err(malformed) };
            let consumed = usize::try_from(self.stream.total_in() - before.0).unwrap_or(usize::MAX);
            compressed = compressed.get(consumed..).unwrap_or_default();
            if block.len() > BLOCK_BYTES {
                return Err(Error::Protocol("a header block that is too long"));
            }
            let is_full = block.len() == block.capacity();
            match compressed.is_empty() && !is_full {
                true => return Ok(block),
                false if is_full => block.reserve_exact(block.len().min(BLOCK_BYTES + 1 - block.len())),
                false if consumed == 0 && self.stream.total_out() == before.1 => return Err(malformed),
                false => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn adler32(bytes: &[u8]) -> u32 {
        let step = |(a, b): (u32, u32), byte: &u8| {
            let a = (a + u32::from(*byte)) % 65521;
            (a, (b + a) % 65521)
        };
        let (a, b) = bytes.iter().fold((1, 0), step);
        b << 16 | a
    }

    #[test]
    fn the_dictionary_is_that_of_spdy_3() {
        assert_eq!(dictionary().len(), 1423);
        assert_eq!(adler32(&dictionary()), DICTIONARY_ID);
    }

    /// Four headers, as zlib compresses them with the dictionary (level 9, sync flush).
    const COMPRESSED: &[u8] = &[
        0x78, 0xf9, 0xe3, 0xc6, 0xa7, 0xc2, 0x02, 0x25, 0x6f, 0x70, 0x3a, 0x2b, 0x29, 0x4a, 0x4d, 0xcc, 0x85,
        0x16, 0x25, 0xc0, 0x14, 0x9b, 0x92, 0x0f, 0x2e, 0x88, 0x71, 0xe4, 0x3e, 0x71, 0x1c, 0x21, 0x8e, 0xbd,
        0xe0, 0x15, 0xc3, 0xee, 0x0f, 0x8c, 0x7c, 0x26, 0x8a, 0x35, 0x40, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff,
    ];

    #[test]
    fn what_zlib_compressed_with_the_dictionary_is_read() {
        let mut inflate = Inflate::default();
        let block = inflate.block(COMPRESSED).unwrap();
        assert!(COMPRESSED.len() < block.len() / 2, "it was compressed");
        let text = String::from_utf8_lossy(&block);
        assert!(text.contains("proxy-authorization") && text.contains("503 Service Unavailable"), "{text:?}");
    }

    #[test]
    fn a_bomb_is_refused() {
        let mut inflate = Inflate::default();
        let zeros = vec![0; BLOCK_BYTES + 1];
        assert!(inflate.block(&Deflate::default().block(&zeros)).is_err());
    }

    proptest! {
        #[test]
        fn blocks_are_read_as_they_were_written(blocks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9000), 1..8)) {
            let (mut deflate, mut inflate) = (Deflate::default(), Inflate::default());
            for block in blocks {
                prop_assert_eq!(inflate.block(&deflate.block(&block)).unwrap(), block);
            }
        }

        #[test]
        fn any_bytes_end_in_a_block_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..3000)) {
            let mut started = Deflate::default().block(b"");
            started.extend(&bytes);
            for input in [bytes, started] {
                if let Ok(block) = Inflate::default().block(&input) {
                    prop_assert!(block.len() <= BLOCK_BYTES);
                }
            }
        }
    }
}
