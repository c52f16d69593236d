//! Random numbers.
//!
//! In real time, this is a cryptographic generator: UIDs, generated names and token IDs do not reveal what comes next.
//! In a simulation, it is a fast generator whose sequence is determined by its seed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::rngs::{SmallRng, StdRng};
use rand::{RngCore, SeedableRng};

/// A shared random number generator. Cheap to clone; clones draw from the same sequence.
#[derive(Clone, Debug)]
pub struct Rng {
    state: Arc<Mutex<Generator>>,
}

#[derive(Debug)]
enum Generator {
    /// Reproducible. Two outputs reveal its state.
    Seeded(SmallRng),
    /// ChaCha12, which generates 256 bytes at a time. Its state never leaves the process.
    Secure(Box<StdRng>),
}

/// A random (version 4) UUID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uid(u128);

impl Rng {
    /// The alphabet of generated name suffixes. Like Kubernetes', it has no vowels and no look-alikes, so that no
    /// suffix spells a word.
    pub const SUFFIX_ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

    /// Creates a generator whose sequence is determined by `seed`. It is predictable: use it only in simulations and
    /// tests.
    pub fn seeded(seed: u64) -> Self {
        Self::new(Generator::Seeded(SmallRng::seed_from_u64(seed)))
    }

    /// Creates a cryptographic generator, seeded by the operating system.
    #[allow(clippy::disallowed_methods, reason = "this module owns randomness")]
    pub fn from_entropy() -> Self {
        Self::new(Generator::Secure(Box::new(StdRng::from_os_rng())))
    }

    fn new(generator: Generator) -> Self {
        Self { state: Arc::new(Mutex::new(generator)) }
    }

    /// Creates an independent generator of the same kind, seeded from this one.
    pub fn fork(&self) -> Self {
        let mut generator = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Self::new(match &mut *generator {
            Generator::Seeded(rng) => Generator::Seeded(SmallRng::seed_from_u64(rng.next_u64())),
            // Use all 256 bits of the seed: one derived from 64 bits could be guessed.
            Generator::Secure(rng) => Generator::Secure(Box::new(StdRng::from_rng(rng))),
        })
    }

    /// Returns 64 random bits.
    pub fn next_u64(&self) -> u64 {
        match &mut *self.state.lock().unwrap_or_else(PoisonError::into_inner) {
            Generator::Seeded(rng) => rng.next_u64(),
            Generator::Secure(rng) => rng.next_u64(),
        }
    }

    /// Returns a number in `0..bound`, or 0 if `bound` is 0.
    pub fn below(&self, bound: u64) -> u64 {
        // Multiply-shift. The bias is below 2^-32 for every bound that occurs here.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in `0.0..1.0`.
    pub fn fraction(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a version 4 UUID.
    pub fn uid(&self) -> Uid {
        let bits = (u128::from(self.next_u64()) << 64) | u128::from(self.next_u64());
        let version_and_variant_cleared = bits & !(0xf000 << 64) & !(0b11 << 62);
        Uid(version_and_variant_cleared | (0x4000 << 64) | (0b10 << 62))
    }

    /// Returns a suffix of `length` characters for a generated name.
    pub fn suffix(&self, length: usize) -> String {
        (0..length).map(|_| char::from(Self::SUFFIX_ALPHABET[self.below(27) as usize])).collect()
    }
}

impl Uid {
    /// Creates a UUID from its sixteen bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_be_bytes(bytes))
    }

    /// Returns the sixteen bytes, most significant first.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_be_bytes()
    }

    /// Parses a UUID in the form that [`Display`](fmt::Display) writes, and no other: lowercase, with four dashes.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 36 {
            return None;
        }
        text.bytes()
            .enumerate()
            .try_fold(0, |bits: u128, (at, character)| {
                let is_dash = matches!(at, 8 | 13 | 18 | 23);
                match character {
                    b'-' if is_dash => Some(bits),
                    b'0'..=b'9' if !is_dash => Some(bits << 4 | u128::from(character - b'0')),
                    b'a'..=b'f' if !is_dash => Some(bits << 4 | u128::from(character - b'a' + 10)),
                    _ => None,
                }
            })
            .map(Self)
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (high, low) = ((self.0 >> 64) as u64, self.0 as u64);
        write!(
            f,
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            high >> 32,
            (high >> 16) & 0xffff,
            high & 0xffff,
            low >> 48,
            low & 0xffff_ffff_ffff
        )
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_is_read_as_it_is_written_and_in_no_other_form() {
        let uid = Rng::seeded(7).uid();
        assert_eq!(Uid::parse(&uid.to_string()), Some(uid));
        assert_eq!(Uid::from_bytes(uid.to_bytes()), uid);
        for text in [
            "",
            "5C1CC9A6-B8AB-4B1A-9A53-0A3C1F4C8D21",
            "5c1cc9a6b8ab-4b1a-9a53-0a3c1f4c8d21-",
            "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d2",
            "5c1cc9a6-b8ab-4b1a-9a53-0a3c1f4c8d2g",
        ] {
            assert_eq!(Uid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_sequence() {
        let draw = || {
            let rng = Rng::seeded(7);
            (rng.uid(), rng.suffix(5), rng.below(100), rng.fork().next_u64())
        };
        assert_eq!(draw(), draw());
    }

    #[test]
    fn a_fork_of_a_secure_source_is_secure() {
        let is_secure = |rng: &Rng| matches!(&*rng.state.lock().unwrap(), Generator::Secure(_));
        let rng = Rng::from_entropy();
        assert!(is_secure(&rng) && is_secure(&rng.fork()) && is_secure(&rng.fork().fork()));
        assert!(!is_secure(&Rng::seeded(1).fork()));
        assert_ne!(rng.fork().uid(), rng.fork().uid());
    }

    #[test]
    fn a_uid_is_a_version_4_uuid() {
        let text = Rng::seeded(1).uid().to_string();
        assert_eq!(text.len(), 36);
        assert_eq!(&text[14..15], "4");
        assert!("89ab".contains(&text[19..20]));
    }

    #[test]
    fn a_suffix_uses_only_the_safe_alphabet() {
        let suffix = Rng::seeded(3).suffix(1000);
        assert!(suffix.bytes().all(|b| Rng::SUFFIX_ALPHABET.contains(&b)));
    }
}
