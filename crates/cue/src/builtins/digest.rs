//! Packages `crypto/md5`, `crypto/sha1`, `crypto/sha256`, `crypto/sha512`: checksums as bytes.

use sha2::Digest;

use super::{Args, Builtin, int};
use crate::eval::Res;
use crate::eval::value_of::Val;

pub(super) const MD5: &[Builtin] = &[
    Builtin::new("Sum", 1, |args| sum(args, |bytes| md5(bytes).to_vec())),
    Builtin::new("Size", 0, |_| Ok(int(16))),
];
pub(super) const SHA1: &[Builtin] = &[Builtin::new("Sum", 1, |args| sum(args, |bytes| sha1(bytes).to_vec()))];
pub(super) const SHA256: &[Builtin] = &[
    Builtin::new("Sum256", 1, |args| sum(args, |bytes| sha2::Sha256::digest(bytes).to_vec())),
    Builtin::new("Sum224", 1, |args| sum(args, |bytes| sha2::Sha224::digest(bytes).to_vec())),
];
pub(super) const SHA512: &[Builtin] = &[
    Builtin::new("Sum512", 1, |args| sum(args, |bytes| sha2::Sha512::digest(bytes).to_vec())),
    Builtin::new("Sum384", 1, |args| sum(args, |bytes| sha2::Sha384::digest(bytes).to_vec())),
];

fn sum(args: &mut Args<'_>, digest: fn(&[u8]) -> Vec<u8>) -> Res<Val> {
    let bytes = args.bytes(0)?;
    args.created_bytes(digest(&bytes))
}

/// Pads a message to blocks of 64 bytes with its length in bits.
fn padded(message: &[u8], length: [u8; 8]) -> Vec<u8> {
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&length);
    padded
}

fn bits(message: &[u8]) -> u64 {
    (message.len() as u64).wrapping_mul(8)
}

/// SHA-1, RFC 3174.
fn sha1(message: &[u8]) -> [u8; 20] {
    let mut state: [u32; 5] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    for block in padded(message, bits(message).to_be_bytes()).chunks_exact(64) {
        let mut words = [0u32; 80];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        for at in 16..80 {
            words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
        }
        let [mut a, mut b, mut c, mut d, mut e] = state;
        for (at, word) in words.into_iter().enumerate() {
            let (mix, key) = match at {
                0..20 => ((b & c) | (!b & d), 0x5a82_7999),
                20..40 => (b ^ c ^ d, 0x6ed9_eba1),
                40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
                _ => (b ^ c ^ d, 0xca62_c1d6u32),
            };
            let next =
                a.rotate_left(5).wrapping_add(mix).wrapping_add(e).wrapping_add(key).wrapping_add(word);
            (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
        }
        for (total, part) in state.iter_mut().zip([a, b, c, d, e]) {
            *total = total.wrapping_add(part);
        }
    }
    let mut digest = [0; 20];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
    digest
}

/// How far each step of MD5 rotates, by round.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// MD5, RFC 1321.
fn md5(message: &[u8]) -> [u8; 16] {
    let mut state: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    for block in padded(message, bits(message).to_le_bytes()).chunks_exact(64) {
        let mut words = [0u32; 16];
        for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
            *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        let [mut a, mut b, mut c, mut d] = state;
        for at in 0..64usize {
            let (mix, word) = match at / 16 {
                0 => ((b & c) | (!b & d), at),
                1 => ((d & b) | (!d & c), (5 * at + 1) % 16),
                2 => (b ^ c ^ d, (3 * at + 5) % 16),
                _ => (c ^ (b | !d), (7 * at) % 16),
            };
            // The integer part of 2^32 times |sin(at + 1)|.
            let key = (((at + 1) as f64).sin().abs() * 4_294_967_296.0) as u32;
            let turned = a.wrapping_add(mix).wrapping_add(key).wrapping_add(words[word]);
            (a, d, c, b) = (d, c, b, b.wrapping_add(turned.rotate_left(ROTATIONS[at / 16][at % 4])));
        }
        for (total, part) in state.iter_mut().zip([a, b, c, d]) {
            *total = total.wrapping_add(part);
        }
    }
    let mut digest = [0; 16];
    for (bytes, word) in digest.chunks_exact_mut(4).zip(state) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    digest
}

#[cfg(test)]
mod tests {
    use super::super::encoding::hex;
    use super::*;

    #[test]
    fn digests_are_those_of_the_standards() {
        assert_eq!(hex(&md5(b"")), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex(&md5(b"message digest")), "f96b697d7cb7938d525a2f31aaf161d0");
        assert_eq!(hex(&sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let long = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(&sha1(long)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
    }
}
