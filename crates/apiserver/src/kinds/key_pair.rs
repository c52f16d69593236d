//! Checks that a certificate and a private key match. v1.34 warns with the messages of Go's TLS library.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ring::signature::{Ed25519KeyPair, KeyPair};
use x509_parser::prelude::{FromDer, X509Certificate};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01];
const EC: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01];
const ED25519: &[u8] = &[0x2b, 0x65, 0x70];
const X25519: &[u8] = &[0x2b, 0x65, 0x6e];

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
/// The tag of the optional public key in an EC private key.
const PUBLIC_OF_EC: u8 = 0xa1;

/// Returns what is wrong with a certificate and its key, both in PEM.
pub(super) fn problem(certificate: &[u8], key: &[u8]) -> Option<String> {
    check(certificate, key).err()
}

fn check(certificate: &[u8], key: &[u8]) -> Result<(), String> {
    let certificate = certificate_in(certificate)?;
    let key = key_in(key)?;
    let (_, certificate) =
        X509Certificate::from_der(&certificate).map_err(|_| "x509: malformed certificate".to_owned())?;
    let private = Private::parse(&key)?;
    let info = certificate.public_key();
    let public: &[u8] = &info.subject_public_key.data;
    let (is_type, is_match) = match (info.algorithm.algorithm.as_bytes(), &private) {
        (RSA, Private::Rsa(parts)) => (true, numbers(public).is_some_and(|found| found.starts_with(parts))),
        (EC, Private::Ec(known)) => (true, known.is_none_or(|known| known == public)),
        (ED25519, Private::Ed25519(known)) => (true, known == public),
        (RSA | EC | ED25519, _) => (false, false),
        _ => return Err("tls: unknown public key algorithm".to_owned()),
    };
    match (is_type, is_match) {
        (false, _) => Err("tls: private key type does not match public key type".to_owned()),
        (true, false) => Err("tls: private key does not match public key".to_owned()),
        (true, true) => Ok(()),
    }
}

/// Returns the first certificate of a PEM text.
fn certificate_in(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut skipped = Vec::new();
    for (label, contents) in blocks(text) {
        if label == "CERTIFICATE" {
            return Ok(contents);
        }
        skipped.push(label);
    }
    Err(match skipped.as_slice() {
        [] => "tls: failed to find any PEM data in certificate input".to_owned(),
        [only] if only.ends_with("PRIVATE KEY") => "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched".to_owned(),
        _ => format!("tls: failed to find \"CERTIFICATE\" PEM block in certificate input after skipping PEM blocks of the following types: [{}]", skipped.join(" ")),
    })
}

/// Returns the first private key of a PEM text.
fn key_in(text: &[u8]) -> Result<Vec<u8>, String> {
    let mut skipped = Vec::new();
    for (label, contents) in blocks(text) {
        if label == "PRIVATE KEY" || label.ends_with(" PRIVATE KEY") {
            return Ok(contents);
        }
        skipped.push(label);
    }
    Err(match skipped.as_slice() {
        [] => "tls: failed to find any PEM data in key input".to_owned(),
        [only] if only == "CERTIFICATE" => {
            "tls: found a certificate rather than a key in the PEM for the private key".to_owned()
        }
        _ => format!(
            "tls: failed to find PEM block with type ending in \"PRIVATE KEY\" in key input after skipping PEM blocks of the following types: [{}]",
            skipped.join(" ")
        ),
    })
}

/// Returns the PEM blocks of a text. Malformed ones are skipped.
fn blocks(text: &[u8]) -> impl Iterator<Item = (String, Vec<u8>)> {
    let text = String::from_utf8_lossy(text).into_owned();
    let mut at = 0;
    std::iter::from_fn(move || {
        while let Some(found) = text[at..].find("-----BEGIN ") {
            let start = at + found + "-----BEGIN ".len();
            at = start;
            let Some((label, rest)) = text[start..].split_once("-----") else { continue };
            let end = format!("-----END {label}-----");
            let Some(length) = rest.find(&end) else { continue };
            let Some(contents) = contents(&rest[..length]) else { continue };
            let label = label.to_owned();
            at = text.len() - rest.len() + length + end.len();
            return Some((label, contents));
        }
        None
    })
}

/// Decodes the contents of a block, without its headers.
fn contents(body: &str) -> Option<Vec<u8>> {
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains(':'));
    STANDARD.decode(lines.collect::<String>()).ok()
}

/// The public part of a private key.
enum Private<'k> {
    /// Modulus and exponent.
    Rsa(Vec<&'k [u8]>),
    /// The point, if the key contains it.
    Ec(Option<&'k [u8]>),
    Ed25519(Vec<u8>),
}

impl<'k> Private<'k> {
    fn parse(key: &'k [u8]) -> Result<Self, String> {
        let failed = || "tls: failed to parse private key".to_owned();
        let (tag, inside, _) = part(key).ok_or_else(failed)?;
        let (_, _, after_version) = part(inside).filter(|_| tag == SEQUENCE).ok_or_else(failed)?;
        match part(after_version).ok_or_else(failed)? {
            (INTEGER, ..) => rsa(key).map(Self::Rsa).ok_or_else(failed),
            (OCTET_STRING, _, rest) => Ok(Self::Ec(point(rest))),
            (SEQUENCE, algorithm, rest) => match (part(algorithm), part(rest)) {
                (Some((OBJECT_ID, id, _)), Some((OCTET_STRING, wrapped, _))) => Self::wrapped(id, wrapped),
                _ => Err(failed()),
            },
            _ => Err(failed()),
        }
    }

    /// Parses a PKCS#8 key by its algorithm.
    fn wrapped(algorithm: &[u8], key: &'k [u8]) -> Result<Self, String> {
        let parsed = match algorithm {
            RSA => rsa(key).map(Self::Rsa),
            EC => part(key).and_then(|(_, inside, _)| {
                let (_, _, rest) = part(inside)?;
                let (_, _, rest) = part(rest)?;
                Some(Self::Ec(point(rest)))
            }),
            ED25519 => part(key).and_then(|(_, seed, _)| {
                let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
                Some(Self::Ed25519(pair.public_key().as_ref().to_vec()))
            }),
            X25519 => return Err("tls: found unknown private key type in PKCS#8 wrapping".to_owned()),
            _ => None,
        };
        parsed.ok_or_else(|| "tls: failed to parse private key".to_owned())
    }
}

/// Returns modulus and exponent, which follow the version.
fn rsa(key: &[u8]) -> Option<Vec<&[u8]>> {
    let parts = numbers(key)?;
    parts.get(1..3).map(<[_]>::to_vec)
}

/// Returns the leading numbers of a sequence.
fn numbers(sequence: &[u8]) -> Option<Vec<&[u8]>> {
    let (_, mut rest, _) = part(sequence).filter(|(tag, ..)| *tag == SEQUENCE)?;
    let mut numbers = Vec::new();
    while let Some((INTEGER, number, after)) = part(rest) {
        numbers.push(number);
        rest = after;
    }
    Some(numbers)
}

/// Returns the public point among the optional parts of an EC key.
fn point(mut parts: &[u8]) -> Option<&[u8]> {
    while let Some((tag, inside, rest)) = part(parts) {
        if tag == PUBLIC_OF_EC {
            let (_, bits, _) = part(inside).filter(|(tag, ..)| *tag == BIT_STRING)?;
            // The first byte is the number of unused bits in the last byte: none.
            return bits.get(1..);
        }
        parts = rest;
    }
    None
}

/// Returns the tag and contents of the first DER value, and the rest.
fn part(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, rest) = der.split_first()?;
    let (first, rest) = rest.split_first()?;
    let (length, rest) = match usize::from(*first) {
        short @ 0..=0x7f => (short, rest),
        // No object needs more than four length bytes.
        long @ 0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(long - 0x80)?;
            (bytes.iter().fold(0, |length, byte| length << 8 | usize::from(*byte)), rest)
        }
        _ => return None,
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((*tag, contents, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(algorithm: &'static rcgen::SignatureAlgorithm) -> (String, String) {
        let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let certificate =
            rcgen::CertificateParams::new(vec!["a".to_owned()]).unwrap().self_signed(&key).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_key_belongs_to_its_certificate() {
        let (certificate, key) = made(&rcgen::PKCS_ECDSA_P256_SHA256);
        let (other_certificate, other_key) = made(&rcgen::PKCS_ED25519);
        let found = |certificate: &str, key: &str| problem(certificate.as_bytes(), key.as_bytes());
        assert_eq!(found(&certificate, &key), None);
        assert_eq!(found(&other_certificate, &other_key), None);
        assert_eq!(found(&format!("x\n{certificate}{other_certificate}"), &key), None);
        let stranger = made(&rcgen::PKCS_ECDSA_P256_SHA256).1;
        for (certificate, key, expected) in [
            (&*certificate, &*stranger, "tls: private key does not match public key"),
            (&certificate, &other_key, "tls: private key type does not match public key type"),
            ("x", &key, "tls: failed to find any PEM data in certificate input"),
            ("", "", "tls: failed to find any PEM data in certificate input"),
            (&certificate, "x", "tls: failed to find any PEM data in key input"),
            (
                &key,
                &key,
                "tls: failed to find certificate PEM data in certificate input, but did find a private key; PEM inputs may have been switched",
            ),
            (
                &certificate,
                &certificate,
                "tls: found a certificate rather than a key in the PEM for the private key",
            ),
            (
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                &key,
                "x509: malformed certificate",
            ),
            (
                &certificate,
                "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
                "tls: failed to parse private key",
            ),
        ] {
            assert_eq!(found(certificate, key).as_deref(), Some(expected));
        }
    }
}
