//! AES-GCM with a new key for every write: `info(32) nonce(12) ciphertext tag(16)`.
//!
//! The key is HKDF-Expand-SHA256(seed, info) with a random `info`, so the seed is never exhausted, even across
//! restarts.

use hkdf::Hkdf;
use sha2::Sha256;
use zeroize::Zeroizing;

use crate::aes_gcm::Gcm;
use crate::cipher::Cipher;
use crate::{TransformError, random};

const INFO: usize = 32;
pub(crate) const SEED: usize = 32;

/// The seed that keys are derived from.
pub(crate) struct Seed(Zeroizing<Vec<u8>>);

impl Seed {
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Self, TransformError> {
        let bytes = Zeroizing::new(bytes);
        if bytes.len() < SEED {
            let message = format!("invalid seed length {} used for key generation", bytes.len());
            return Err(TransformError::new(message));
        }
        Ok(Self(bytes))
    }

    fn derived(&self, info: &[u8]) -> Result<Gcm, TransformError> {
        let failed = |what: &str| TransformError::new(format!("failed to KDF expand seed with info: {what}"));
        let kdf = Hkdf::<Sha256>::from_prk(&self.0).map_err(|error| failed(&error.to_string()))?;
        let mut key = Zeroizing::new([0; 32]);
        kdf.expand(info, &mut *key).map_err(|error| failed(&error.to_string()))?;
        Gcm::new(&*key)
    }
}

impl Cipher for Seed {
    fn seal(&self, data: &[u8], authenticated: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError> {
        let info = random::array::<INFO>()?;
        out.extend_from_slice(&info);
        self.derived(&info)?.seal(data, authenticated, out)
    }

    fn open(&self, data: &[u8], authenticated: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some((info, sealed)) = data.split_at_checked(INFO) else {
            return Err(TransformError::new("the stored data was shorter than the required size"));
        };
        self.derived(info)?.open(sealed, authenticated)
    }
}
