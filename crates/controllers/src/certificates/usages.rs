//! Key usages: their names in requests, their bits and identifiers.

/// Bit numbers of the key usage extension.
const KEY_USAGES: &[(&str, u16)] = &[
    ("signing", 0),
    ("digital signature", 0),
    ("content commitment", 1),
    ("key encipherment", 2),
    ("data encipherment", 3),
    ("key agreement", 4),
    ("cert sign", 5),
    ("crl sign", 6),
    ("encipher only", 7),
    ("decipher only", 8),
];

/// DER-encoded identifiers of the extended key usage extension, in output order.
const EXTENDED: &[(&str, &[u8])] = &[
    ("any", &[0x55, 0x1d, 0x25, 0x00]),
    ("server auth", &[0x2b, 6, 1, 5, 5, 7, 3, 1]),
    ("client auth", &[0x2b, 6, 1, 5, 5, 7, 3, 2]),
    ("code signing", &[0x2b, 6, 1, 5, 5, 7, 3, 3]),
    ("email protection", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("s/mime", &[0x2b, 6, 1, 5, 5, 7, 3, 4]),
    ("ipsec end system", &[0x2b, 6, 1, 5, 5, 7, 3, 5]),
    ("ipsec tunnel", &[0x2b, 6, 1, 5, 5, 7, 3, 6]),
    ("ipsec user", &[0x2b, 6, 1, 5, 5, 7, 3, 7]),
    ("timestamping", &[0x2b, 6, 1, 5, 5, 7, 3, 8]),
    ("ocsp signing", &[0x2b, 6, 1, 5, 5, 7, 3, 9]),
    ("microsoft sgc", &[0x2b, 6, 1, 4, 1, 0x82, 0x37, 10, 3, 3]),
    ("netscape sgc", &[0x60, 0x86, 0x48, 1, 0x86, 0xf8, 0x42, 4, 1]),
];

/// The usages of a certificate.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Usages {
    pub(super) key: u16,
    pub(super) extended: Vec<&'static [u8]>,
}

impl Usages {
    /// Parses usage names. The error lists the unknown ones.
    pub(super) fn of<S: AsRef<str>>(words: &[S]) -> Result<Self, String> {
        let key_bit = |word: &str| KEY_USAGES.iter().find(|(name, _)| *name == word).map(|(_, bit)| 1 << bit);
        let is_extended = |word: &str| EXTENDED.iter().any(|(name, _)| *name == word);
        let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let unknown: Vec<&&str> =
            words.iter().filter(|word| key_bit(word).is_none() && !is_extended(word)).collect();
        if !unknown.is_empty() {
            return Err(format!("unrecognized usage values: {unknown:?}"));
        }
        let mut extended: Vec<&'static [u8]> = Vec::new();
        for (name, id) in EXTENDED {
            if words.contains(name) && !extended.contains(id) {
                extended.push(id);
            }
        }
        Ok(Self {
            key: words.iter().filter_map(|word| key_bit(word)).fold(0, |all, bit| all | bit),
            extended,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usages_become_key_usage_bits_and_identifiers() {
        let usages = Usages::of(&["client auth", "digital signature", "key encipherment"]).unwrap();
        assert_eq!(usages.key, 0b101);
        assert_eq!(usages.extended, [EXTENDED[2].1]);
        assert_eq!(Usages::of(&["s/mime", "email protection"]).unwrap().extended.len(), 1);
    }

    #[test]
    fn an_unknown_usage_is_named_in_the_error() {
        let error = Usages::of(&["client auth", "magic"]).unwrap_err();
        assert_eq!(error, "unrecognized usage values: [\"magic\"]");
    }
}
