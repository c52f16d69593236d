//! Random bytes for keys and nonces, from the operating system, never from a seeded sequence. They do not affect a
//! simulation's trace, because only ciphertext depends on them.

use ring::rand::{SecureRandom, SystemRandom};

use crate::TransformError;

pub(crate) fn fill(bytes: &mut [u8]) -> Result<(), TransformError> {
    SystemRandom::new().fill(bytes).map_err(|_| TransformError::new("unable to read sufficient random bytes"))
}

pub(crate) fn array<const N: usize>() -> Result<[u8; N], TransformError> {
    let mut bytes = [0; N];
    fill(&mut bytes)?;
    Ok(bytes)
}
