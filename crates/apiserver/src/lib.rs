//! The Kubernetes API over a store.
//!
//! ```text
//!  request ─► authenticate ─► authorize ─► route ─► decode ─► default ─► admit ─► validate ─► commit
//!                                            │
//!                                            ├─► get, list: the store's own bytes
//!                                            └─► watch: a cursor into the store's history
//! ```
//!
//! What always holds:
//! - a kind is one entry of the registry ([`kind::Kind`]); no handler names a kind;
//! - an object is encoded once per change; gets, lists and watches share those bytes;
//! - a refused request changes nothing and says which field was wrong and what was expected.

pub mod field;
pub mod json;
pub mod kind;
pub mod kinds;
pub mod patch;
pub mod schema;
pub mod strategy;
pub mod table;
pub mod validation;
pub use setpoint_quantity as quantity;
