//! Time and chance: the one place that reads the wall clock or draws randomness.
//!
//! Everything else is handed a [`Clock`] and an [`Rng`], so that the same code runs in real time
//! and, on a paused tokio runtime, in virtual time with a byte-identical trace for the same seed.
//!
//! What always holds:
//! - a simulated clock moves only when tokio's paused time moves;
//! - two [`Rng`]s made from one seed give the same sequence; a [`fork`](Rng::fork) is independent of
//!   how much its parent draws afterwards.

mod clock;
mod rng;

pub use clock::{Clock, Instant};
pub use rng::{Rng, Uid};

/// The examples of the README are tested with the others.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
