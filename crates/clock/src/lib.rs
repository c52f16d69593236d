//! Time and randomness: the only crate that reads a clock or draws random numbers.
//!
//! Everything else receives a [`Clock`] and an [`Rng`]. So the same code runs in real time and, on a paused tokio
//! runtime, in virtual time, where the same seed gives a byte-identical trace.
//!
//! Invariants:
//! - A simulated clock advances only when tokio's paused time advances.
//! - Two [`Rng`]s with the same seed produce the same sequence. A [`fork`](Rng::fork) does not depend on what its
//!   parent draws afterwards.

mod clock;
mod rng;

pub use clock::{Clock, Instant};
pub use rng::{Rng, Uid};

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
