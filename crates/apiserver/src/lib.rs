//! The Kubernetes API over a store.
//!
//! ```text
//!  request ─► chain ─► route ─► decode ─► default ─► admit ─► validate ─► commit
//!                      │
//!                      ├─► get, list: the store's own bytes
//!                      └─► watch: a cursor into the store's history
//! ```
//!
//! Invariants:
//! - a kind is one entry in the registry ([`kind::Kind`]); no handler names a kind;
//! - an object is encoded once per change; gets, lists and watches share those bytes;
//! - a rejected request changes nothing and says which field was wrong and what was expected.

pub mod admission;
pub mod aggregation;
pub mod apply;
pub mod audit;
pub mod auth;
mod body;
mod chain;
mod codec;
mod compress;
pub mod custom;
mod declared;
mod decode;
mod discovery;
pub mod egress;
pub mod facts;
mod features;
pub mod field;
mod flow;
mod header;
mod health;
pub mod json;
pub mod kind;
pub mod kinds;
mod kubelet;
mod loopback;
mod maintain;
pub mod metadata;
mod metrics;
pub mod names;
mod negotiate;
pub mod openapi;
mod openid;
mod options;
pub mod patch;
mod protobuf;
mod proxy;
mod query;
pub mod registry;
mod replicas;
mod request;
mod rest;
mod review_document;
mod review_types;
mod route;
pub mod runtime_config;
pub mod schema;
pub mod selector;
mod serve;
mod server;
pub mod services;
pub mod status;
pub mod storage;
pub mod strategy;
mod system_objects;
pub mod table;
pub mod tls;
mod transform;
mod tunnel;
pub mod validation;
mod websocket;

pub use auth::{Authenticator, User};
pub use body::{Aborted, Body};
pub use facts::Facts;
pub use features::Features;
pub use flow::{FlowSettings, WatchLimits};
pub use health::HealthCheck;
pub use kubelet::KubeletConfig;
pub use registry::Gvr;
pub use rest::watch::{ChangeKind, RecordWatch};
pub use selector::Selection;
pub use serve::ServeSettings;
pub use server::{ApiServer, Config, Introspect, Metrics, Server, StartError, Warnings};
pub use setpoint_cel as cel;
use setpoint_cel::pattern;
pub use setpoint_quantity as quantity;
pub use setpoint_token::{PublicKey, TokenSigner};
pub use status::Status;
pub use tunnel::Tunnel;
