//! DER encoding.

use jiff::Timestamp;
use jiff::tz::TimeZone;
pub(super) use setpoint_token::der as value;

pub(super) const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const OCTET_STRING: u8 = 0x04;
const OID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const BOOLEAN_TRUE: &[u8] = &[0x01, 0x01, 0xff];

pub(super) fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, &parts.concat())
}

/// Encodes a context-specific value: `[n]`.
pub(super) fn tagged(number: u8, content: &[u8]) -> Vec<u8> {
    value(0xa0 | number, content)
}

/// Encodes an object identifier whose content is already encoded.
pub(super) fn oid(content: &[u8]) -> Vec<u8> {
    value(OID, content)
}

pub(super) fn octets(content: &[u8]) -> Vec<u8> {
    value(OCTET_STRING, content)
}

/// Encodes whole bytes as a bit string.
pub(super) fn bits(content: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], content].concat())
}

/// Encodes flags as a bit string, highest bit first, without trailing zeros.
pub(super) fn flags(set: u16) -> Vec<u8> {
    let bytes = set.reverse_bits().to_be_bytes();
    let used = if bytes[1] == 0 { &bytes[..1] } else { &bytes[..] };
    let unused = used.last().map_or(0, |byte| byte.trailing_zeros().min(7) as u8);
    value(BIT_STRING, &[&[unused], used].concat())
}

/// Encodes a positive integer from its bytes.
pub(super) fn positive(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let significant = &bytes[zeros..];
    match significant.first() {
        Some(first) if first & 0x80 == 0 => value(INTEGER, significant),
        _ => value(INTEGER, &[&[0], significant].concat()),
    }
}

/// Encodes a time in seconds: UTCTime until 2049, as X.509 requires.
pub(super) fn time(at: Timestamp) -> Vec<u8> {
    let at = at.to_zoned(TimeZone::UTC);
    let short = at.year() < 2050;
    let (tag, form) = if short { (UTC_TIME, "%y%m%d%H%M%SZ") } else { (GENERALIZED_TIME, "%Y%m%d%H%M%SZ") };
    value(tag, at.strftime(form).to_string().as_bytes())
}

/// Encodes a certificate extension with the identifier `2.5.29.n`.
pub(super) fn extension(number: u8, critical: bool, content: &[u8]) -> Vec<u8> {
    let critical: &[u8] = if critical { BOOLEAN_TRUE } else { &[] };
    sequence(&[&oid(&[0x55, 0x1d, number]), critical, &octets(content)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_a_short_and_a_long_form() {
        assert_eq!(value(4, &[7; 3]), [4, 3, 7, 7, 7]);
        assert_eq!(value(4, &[0; 200])[..3], [4, 0x81, 200]);
        assert_eq!(value(4, &[0; 300])[..4], [4, 0x82, 1, 44]);
    }

    #[test]
    fn a_number_is_never_mistaken_for_a_negative_one() {
        assert_eq!(positive(&[0, 0, 5]), [2, 1, 5]);
        assert_eq!(positive(&[0x80]), [2, 2, 0, 0x80]);
        assert_eq!(positive(&[0, 0]), [2, 1, 0]);
    }

    #[test]
    fn flags_end_with_the_last_one_that_is_set() {
        // Digital signature and key encipherment: bits 0 and 2.
        assert_eq!(flags(0b101), [3, 2, 5, 0b1010_0000]);
        // Decipher only: bit 8.
        assert_eq!(flags(1 << 8), [3, 3, 7, 0, 0b1000_0000]);
    }

    #[test]
    fn times_take_the_form_of_their_century() {
        let at = |text: &str| String::from_utf8(time(text.parse().unwrap())[2..].to_vec()).unwrap();
        assert_eq!(at("2049-12-31T23:59:59.7Z"), "491231235959Z");
        assert_eq!(at("2050-01-01T00:00:00Z"), "20500101000000Z");
    }
}
