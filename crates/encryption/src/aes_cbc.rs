//! AES-CBC with PKCS#7 padding: `iv(16) ciphertext`. Not authenticated: a value can be altered or moved without
//! detection.

use aes::{Aes128, Aes192, Aes256};
use cbc::cipher::block_padding::{NoPadding, Pkcs7};
use cbc::cipher::{BlockDecryptMut, BlockEncryptMut, InnerIvInit, KeyInit};

use crate::cipher::Cipher;
use crate::{TransformError, random};

const BLOCK: usize = 16;

/// The block cipher for a key of 16, 24 or 32 bytes.
pub(crate) enum Block {
    Aes128(Box<Aes128>),
    Aes192(Box<Aes192>),
    Aes256(Box<Aes256>),
}

impl Block {
    pub(crate) fn new(key: &[u8]) -> Result<Self, TransformError> {
        let invalid = |_| TransformError::new(format!("crypto/aes: invalid key size {}", key.len()));
        match key.len() {
            16 => Aes128::new_from_slice(key).map(Box::new).map(Self::Aes128).map_err(invalid),
            24 => Aes192::new_from_slice(key).map(Box::new).map(Self::Aes192).map_err(invalid),
            _ => Aes256::new_from_slice(key).map(Box::new).map(Self::Aes256).map_err(invalid),
        }
    }

    /// Encrypts the first `length` bytes of `buffer`, which must have room for the padding.
    fn encrypt(&self, iv: &[u8; BLOCK], buffer: &mut [u8], length: usize) -> Result<(), TransformError> {
        let iv = iv.into();
        let encrypted = match self {
            Self::Aes128(cipher) => cbc::Encryptor::inner_iv_init(Aes128::clone(cipher), iv)
                .encrypt_padded_mut::<Pkcs7>(buffer, length),
            Self::Aes192(cipher) => cbc::Encryptor::inner_iv_init(Aes192::clone(cipher), iv)
                .encrypt_padded_mut::<Pkcs7>(buffer, length),
            Self::Aes256(cipher) => cbc::Encryptor::inner_iv_init(Aes256::clone(cipher), iv)
                .encrypt_padded_mut::<Pkcs7>(buffer, length),
        };
        encrypted.map(|_| ()).map_err(|_| TransformError::new("no room for the padding"))
    }

    /// Decrypts whole blocks. Does not remove the padding.
    fn decrypt(&self, iv: &[u8; BLOCK], buffer: &mut [u8]) -> Result<(), TransformError> {
        let iv = iv.into();
        let decrypted = match self {
            Self::Aes128(cipher) => cbc::Decryptor::inner_iv_init(Aes128::clone(cipher), iv)
                .decrypt_padded_mut::<NoPadding>(buffer),
            Self::Aes192(cipher) => cbc::Decryptor::inner_iv_init(Aes192::clone(cipher), iv)
                .decrypt_padded_mut::<NoPadding>(buffer),
            Self::Aes256(cipher) => cbc::Decryptor::inner_iv_init(Aes256::clone(cipher), iv)
                .decrypt_padded_mut::<NoPadding>(buffer),
        };
        decrypted.map(|_| ()).map_err(|_| TransformError::new(NOT_BLOCKS))
    }
}

impl Cipher for Block {
    fn seal(&self, data: &[u8], _: &[u8], out: &mut Vec<u8>) -> Result<(), TransformError> {
        let iv = random::array::<BLOCK>()?;
        out.extend_from_slice(&iv);
        let start = out.len();
        out.extend_from_slice(data);
        out.resize(start + (data.len() / BLOCK + 1) * BLOCK, 0);
        self.encrypt(&iv, &mut out[start..], data.len())
    }

    fn open(&self, data: &[u8], _: &[u8]) -> Result<Vec<u8>, TransformError> {
        let Some((iv, sealed)) = data.split_first_chunk::<BLOCK>() else {
            return Err(TransformError::new("the stored data was shorter than the required size"));
        };
        if !sealed.len().is_multiple_of(BLOCK) {
            return Err(TransformError::new(NOT_BLOCKS));
        }
        let mut buffer = sealed.to_vec();
        self.decrypt(iv, &mut buffer)?;
        let length = unpadded_length(&buffer)?;
        buffer.truncate(length);
        Ok(buffer)
    }
}

const NOT_BLOCKS: &str = "the stored data is not a multiple of the block size";

/// Returns the length without the padding. Like v1.34, accepts a padding longer than a block.
fn unpadded_length(padded: &[u8]) -> Result<usize, TransformError> {
    let padding = padded.last().copied().unwrap_or(0);
    let length = padded.len().checked_sub(padding.into()).filter(|_| padding > 0);
    let length = length.ok_or_else(|| TransformError::new("invalid PKCS7 data (empty or not padded)"))?;
    match padded[length..].iter().all(|byte| *byte == padding) {
        true => Ok(length),
        false => Err(TransformError::new("invalid padding on input")),
    }
}
