//! A framework for Kubernetes controllers: watches, informers, work queues, reconcilers.
//!
//! ```text
//!  API server (over any kube::Client, or in the same process)
//!      │
//!  1 source      list, then watch                               source/
//!  2 reflector   Empty → Listing → Watching; 410 → relist       reflector.rs
//!  3 delta FIFO  per-key deltas, in order, compacted            delta.rs
//!  4 indexer     one writer ─► listers: cheap readers           indexer.rs, lister.rs
//!  5 informer    shared: pop → index → distribute               informer/
//!  6 handlers    event → keys; predicates, mapping              handler/
//!  7 work queue  dedup, delay, rate limit                       queue/
//!  8 worker      the only loop: take, time, report, requeue     worker.rs
//!  9 reconcile   observe → plan (pure) → apply → status         reconcile.rs
//!      │
//!  client        writes with preconditions                      client/
//! ```
//!
//! [`Controller::for_`] connects the stages, and [`Manager`] runs them:
//!
//! ```no_run
//! use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
//! use setpoint::prelude::*;
//!
//! fn counter(context: &Context) -> Controller {
//!     Controller::for_::<Namespace>(context, "counter")
//!         .watches(|map: &Cached<ConfigMap>| map.namespace().map(Key::cluster))
//!         .run(count)
//! }
//!
//! async fn count(namespace: Cached<Namespace>, context: Context) -> Result<(), ReconcileError> {
//!     let maps = context.cached_list::<ConfigMap>(Some(namespace.name())).await?;
//!     println!("{} has {} ConfigMaps", namespace.name(), maps.len());
//!     Ok(())
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! Manager::from_env("counter").await?.with(counter).run_until_signal().await?;
//! # Ok(()) }
//! ```
//!
//! Invariants:
//! - There is one informer pipeline, one worker loop and one way to report an outcome.
//! - A reconciler gets a key, never an event, and may be called at any time.
//! - Time and randomness come from the [`Runtime`]. Nothing depends on hash map order.
//! - Everything that can grow is bounded, with the arithmetic next to the bound.

#![deny(missing_docs)]

mod access;
pub mod adaptive;
pub mod api;
pub mod backoff;
pub mod batch;
pub mod client;
pub mod clusters;
pub mod conditions;
pub mod config;
pub mod controller;
mod delta;
pub mod discovery;
pub mod expectations;
pub mod finalizer;
pub mod handler;
pub mod health;
pub mod identity;
pub mod indexer;
pub mod informer;
mod installation;
pub mod introspection;
pub mod key;
pub mod kind;
pub mod leader;
pub mod lister;
pub mod manager;
pub mod metrics;
pub mod object;
pub mod owner;
mod pending_writes;
pub mod prelude;
pub mod queue;
pub mod reconcile;
pub mod recorder;
pub mod recording;
mod reflector;
pub mod selector;
#[cfg(feature = "serve")]
pub mod serve;
pub mod shard;
pub mod source;
#[cfg(feature = "otel")]
pub mod telemetry;
pub mod update_body;
#[cfg(feature = "webhook")]
pub mod webhook;
mod worker;
pub mod write_tracker;

pub use setpoint_clock::{Clock, Instant, Rng, Uid};

pub use access::Access;
pub use api::Api;
pub use client::{Client, ClientError};
pub use config::ControllerConfig;
pub use controller::{Controller, Runnable};
pub use expectations::Expectations;
pub use handler::Event;
pub use identity::{Identify, Identity};
pub use informer::{Informer, Informers};
pub use installation::{InstallError, install_kinds};
pub use key::Key;
pub use kind::{Kind, View, WholeView};
pub use lister::{Cached, Decoded, Lister};
pub use manager::{Context, Manager};
pub use object::{Labels, Metadata, Object, OwnerRef, null_is_empty};
pub use queue::Queue;
pub use reconcile::{Outcome, ReconcileError, Reconciler};
pub use recorder::{EventType, Recorder};
pub use selector::LabelSelector;
pub use update_body::UpdateBody;

/// The clock and the random number generator that everything uses. Cheap to clone.
///
/// ```
/// use setpoint::{Clock, Rng, Runtime};
/// let runtime = Runtime::system();
/// assert!(runtime.rng.below(6) < 6);
/// let simulated = Runtime { clock: Clock::simulated("2025-01-01T00:00:00Z".parse().unwrap()), rng: Rng::seeded(1) };
/// ```
#[derive(Clone, Debug)]
pub struct Runtime {
    /// The clock: real or simulated.
    pub clock: Clock,
    /// The random number generator.
    pub rng: Rng,
}

impl Runtime {
    /// Returns the machine's clock and secure randomness.
    pub fn system() -> Self {
        Self { clock: Clock::system(), rng: Rng::from_entropy() }
    }
}

/// Runs the README's examples as doc tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
