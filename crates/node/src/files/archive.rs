//! Tar archives, as `kubectl cp` writes and reads them. Pure.
//!
//! Written is ustar, with GNU's extension for long names. Read are also PAX headers. Links and devices are skipped.

use jiff::Timestamp;

const BLOCK: usize = 512;

/// The longest name of an extension header: paths of Linux have 4096 bytes.
const MAX_NAME: usize = 64 << 10;

/// A file or directory of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) mode: u32,
    pub(crate) modified: Timestamp,
    /// `None` for a directory.
    pub(crate) content: Option<Vec<u8>>,
}

/// Encodes a member.
pub(crate) fn encode(member: &Member) -> Vec<u8> {
    let mut encoded = Vec::new();
    let mut name = member.name.clone();
    if member.content.is_none() && !name.ends_with('/') {
        name.push('/');
    }
    if name.len() > 100 {
        let long = [name.as_bytes(), &[0]].concat();
        encoded.extend(header("././@LongLink", b'L', 0o644, Timestamp::UNIX_EPOCH, long.len()));
        push_padded(&mut encoded, &long);
    }
    let (kind, content) = member.content.as_deref().map_or((b'5', &[][..]), |content| (b'0', content));
    encoded.extend(header(&name, kind, member.mode, member.modified, content.len()));
    push_padded(&mut encoded, content);
    encoded
}

/// The end of an archive.
pub(crate) const END: [u8; 2 * BLOCK] = [0; 2 * BLOCK];

fn push_padded(encoded: &mut Vec<u8>, content: &[u8]) {
    encoded.extend_from_slice(content);
    encoded.resize(encoded.len().next_multiple_of(BLOCK), 0);
}

fn header(name: &str, kind: u8, mode: u32, modified: Timestamp, size: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &name.as_bytes()[..name.len().min(100)]);
    put(100, format!("{:07o}\0", mode & 0o7777).as_bytes());
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, format!("{:011o}\0", modified.as_second().max(0)).as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(265, b"root\0");
    put(297, b"root\0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

/// Why an archive cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ArchiveError {
    InvalidHeader,
    /// A member is larger than the limit.
    TooLarge,
    /// The archive ends in the middle of a member.
    ShortRead,
}

/// Reads an archive piece by piece. Holds at most one member.
#[derive(Debug)]
pub(crate) struct Reader {
    limit: usize,
    buffer: Vec<u8>,
    state: State,
    /// From an extension header.
    long_name: Option<String>,
    members: Vec<Member>,
}

#[derive(Debug)]
enum State {
    Header,
    Content { header: Header, left: usize, padding: usize },
    Done,
}

#[derive(Clone, Debug)]
struct Header {
    name: String,
    mode: u32,
    modified: Timestamp,
    size: usize,
    kind: u8,
}

impl Reader {
    /// Creates a reader that rejects members above a size.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, buffer: Vec::new(), state: State::Header, long_name: None, members: Vec::new() }
    }

    /// Reads a piece, and returns the members that it completes.
    pub(crate) fn read(&mut self, mut piece: &[u8]) -> Result<Vec<Member>, ArchiveError> {
        while !piece.is_empty() {
            piece = match &self.state {
                State::Done => &[],
                State::Header => self.read_header(piece)?,
                State::Content { .. } => self.read_content(piece)?,
            };
        }
        Ok(std::mem::take(&mut self.members))
    }

    /// Checks that the archive has ended.
    pub(crate) fn finish(&self) -> Result<(), ArchiveError> {
        match self.state {
            State::Done => Ok(()),
            State::Header if self.buffer.is_empty() => Ok(()),
            _ => Err(ArchiveError::ShortRead),
        }
    }

    fn read_header<'p>(&mut self, piece: &'p [u8]) -> Result<&'p [u8], ArchiveError> {
        let (taken, rest) = piece.split_at(piece.len().min(BLOCK - self.buffer.len()));
        self.buffer.extend_from_slice(taken);
        if self.buffer.len() < BLOCK {
            return Ok(rest);
        }
        let block = std::mem::take(&mut self.buffer);
        if block.iter().all(|byte| *byte == 0) {
            self.state = State::Done;
            return Ok(rest);
        }
        let header = Header::parse(&block).ok_or(ArchiveError::InvalidHeader)?;
        let is_extension = matches!(header.kind, b'L' | b'x' | b'g' | b'K');
        if header.size > self.limit || is_extension && header.size > MAX_NAME {
            return Err(ArchiveError::TooLarge);
        }
        let padding = header.size.next_multiple_of(BLOCK) - header.size;
        self.state = State::Content { left: header.size, padding, header };
        // A member without content is complete.
        self.complete_if_read();
        Ok(rest)
    }

    fn read_content<'p>(&mut self, piece: &'p [u8]) -> Result<&'p [u8], ArchiveError> {
        let State::Content { left, padding, .. } = &mut self.state else { return Ok(piece) };
        let (content, rest) = piece.split_at(piece.len().min(*left));
        *left -= content.len();
        self.buffer.extend_from_slice(content);
        let skipped = rest.len().min(if *left == 0 { *padding } else { 0 });
        *padding -= skipped;
        self.complete_if_read();
        Ok(&rest[skipped..])
    }

    fn complete_if_read(&mut self) {
        let State::Content { header, left: 0, padding: 0 } = &self.state else { return };
        let (header, content) = (header.clone(), std::mem::take(&mut self.buffer));
        self.state = State::Header;
        match header.kind {
            b'L' => {
                let name = content.split(|byte| *byte == 0).next().unwrap_or_default();
                self.long_name = Some(String::from_utf8_lossy(name).into_owned());
            }
            b'x' => self.long_name = pax_path(&content),
            b'0' | 0 | b'7' => self.complete(header, Some(content)),
            b'5' => self.complete(header, None),
            // Links, devices and global headers.
            _ => self.long_name = None,
        }
    }

    fn complete(&mut self, header: Header, content: Option<Vec<u8>>) {
        let name = self.long_name.take().unwrap_or(header.name);
        let is_directory = content.is_none() || name.ends_with('/');
        let content = content.filter(|_| !is_directory);
        let name = name.trim_end_matches('/').to_owned();
        self.members.push(Member { name, mode: header.mode, modified: header.modified, content });
    }
}

impl Header {
    fn parse(block: &[u8]) -> Option<Self> {
        let text = |from: usize, length: usize| {
            let field = &block[from..from + length];
            let field = field.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(field).into_owned()
        };
        let number = |from: usize, length: usize| {
            let digits = text(from, length);
            let digits = digits.trim();
            if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
        };
        let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
        let own: u64 = block[148..156].iter().map(|byte| u64::from(*byte)).sum();
        // Spaces stand for the checksum while it is computed.
        if number(148, 8)? != sum - own + 8 * 32 {
            return None;
        }
        let (name, prefix) = (text(0, 100), text(345, 155));
        let has_prefix = !prefix.is_empty() && &block[257..262] == b"ustar";
        let seconds = i64::try_from(number(136, 12)?).ok()?;
        Some(Self {
            name: if has_prefix { format!("{prefix}/{name}") } else { name },
            mode: u32::try_from(number(100, 8)?).ok()? & 0o7777,
            modified: Timestamp::from_second(seconds).ok()?,
            size: usize::try_from(number(124, 12)?).ok()?,
            kind: block[156],
        })
    }
}

/// Returns the path in a PAX header: lines of `LENGTH KEY=VALUE`.
fn pax_path(content: &[u8]) -> Option<String> {
    let mut rest = content;
    while !rest.is_empty() {
        let space = rest.iter().position(|byte| *byte == b' ')?;
        let length: usize = std::str::from_utf8(&rest[..space]).ok()?.parse().ok()?;
        let record = rest.get(space + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            return Some(String::from_utf8_lossy(path).into_owned());
        }
        rest = rest.get(length..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, content: Option<&str>) -> Member {
        let modified = "2025-01-01T00:00:00Z".parse().expect("a time");
        Member {
            name: name.into(),
            mode: 0o640,
            modified,
            content: content.map(|text| text.as_bytes().to_vec()),
        }
    }

    fn read(archive: &[u8], piece: usize) -> Result<Vec<Member>, ArchiveError> {
        let mut reader = Reader::new(1 << 20);
        let mut members = Vec::new();
        for piece in archive.chunks(piece) {
            members.extend(reader.read(piece)?);
        }
        reader.finish().map(|()| members)
    }

    #[test]
    fn what_is_written_is_read_in_pieces_of_any_size() {
        let long = "d/".repeat(80) + "f";
        let exact = "x".repeat(BLOCK);
        let members = [
            member("d", None),
            member("d/f", Some("hello")),
            member(&long, Some(&exact)),
            member("e", Some("")),
        ];
        let mut archive: Vec<u8> = members.iter().flat_map(encode).collect();
        archive.extend(END);
        for piece in [1, 7, 512, 700, 100_000] {
            assert_eq!(read(&archive, piece).as_deref(), Ok(&members[..]), "{piece}");
        }
        assert_eq!(read(&archive[..1000], 512), Err(ArchiveError::ShortRead));
    }

    #[test]
    fn names_of_pax_headers_are_used_and_links_are_skipped() {
        let mut archive = Vec::new();
        let record = b"18 path=long/name\n";
        archive.extend(header("PaxHeaders/x", b'x', 0o644, Timestamp::UNIX_EPOCH, record.len()));
        push_padded(&mut archive, record);
        archive.extend(header("short", b'0', 0o640, member("", None).modified, 2));
        push_padded(&mut archive, b"hi");
        archive.extend(header("link", b'2', 0o777, Timestamp::UNIX_EPOCH, 0));
        assert_eq!(read(&archive, 512), Ok(vec![member("long/name", Some("hi"))]));
    }

    #[test]
    fn records_of_pax_headers_that_are_too_short_or_long_are_ignored() {
        for record in ["3 ", "0 x", "1 x", "2 x", "12 a=b\n", "18446744073709551615 a=b\n", "6 a=b\nx"] {
            assert_eq!(pax_path(record.as_bytes()), None, "{record}");
        }
    }

    #[test]
    fn garbage_and_members_that_are_too_large_are_rejected() {
        assert_eq!(read(&[b'x'; 1024], 512), Err(ArchiveError::InvalidHeader));
        let huge = header("f", b'0', 0o644, Timestamp::UNIX_EPOCH, 2 << 20);
        assert_eq!(read(&huge, 512), Err(ArchiveError::TooLarge));
    }
}
