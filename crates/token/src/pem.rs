//! The parts of PEM and DER that keys need.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::BadKey;

/// Encodes a DER value: tag, length, content.
pub fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
    let mut encoded = vec![tag];
    match content.len() {
        short @ 0..128 => encoded.push(short as u8),
        _ => {
            encoded.push(0x80 | significant.len() as u8);
            encoded.extend(significant);
        }
    }
    encoded.extend(content);
    encoded
}

/// Decodes the DER value at the start of `bytes`. Returns its tag, its content, and the rest.
pub(crate) fn read(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    let (length, rest) = match first {
        short if short < 0x80 => (usize::from(short), rest),
        // Keys are shorter than 2^24 bytes.
        0x81..=0x83 => {
            let (length, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            (length.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some((tag, content, rest))
}

/// Decodes a DER value that must have this tag. Returns its content and the rest.
pub(crate) fn expect(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (found, content, rest) = read(bytes)?;
    (found == tag).then_some((content, rest))
}

/// Formats a PEM block.
pub(crate) fn block(label: &str, bytes: &[u8]) -> String {
    let text = STANDARD.encode(bytes);
    let lines: Vec<&str> = (0..text.len()).step_by(64).map(|at| &text[at..text.len().min(at + 64)]).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Parses the labels and contents of the blocks of a PEM file.
pub(crate) fn blocks(pem: &str) -> Result<Vec<(&str, Vec<u8>)>, BadKey> {
    let mut found = Vec::new();
    for block in pem.split("-----BEGIN ").skip(1) {
        let Some((label, rest)) = block.split_once("-----") else { continue };
        let Some((body, _)) = rest.split_once("-----END ") else { continue };
        let base64: String = body.chars().filter(|char| !char.is_whitespace()).collect();
        found.push((label, STANDARD.decode(base64).map_err(|error| BadKey(error.to_string()))?));
    }
    Ok(found)
}
