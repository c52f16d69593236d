//! Requests to hooks and their responses: Metacontroller's protocol, versions 1 and 2.
//!
//! ```text
//!  request.rs   parent, children, related ─► the request
//!  answer.rs    the answer, loosely or strictly read
//!  document.rs  JSON with its duplicate fields
//!  objects.rs   objects by kind and key, and the two forms of their names
//! ```

mod answer;
mod document;
mod objects;
mod request;

pub(crate) use answer::{AnsweredCondition, Shape, SyncAnswer, read_customize, read_sync};
pub(crate) use objects::{Objects, relative_key, relative_name};
pub(crate) use request::{CustomizeRequest, SyncRequest};
