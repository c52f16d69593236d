//! Requests of workflow steps. The program that runs the controllers decides whether, how and where they are sent.

use std::collections::BTreeMap;

use futures::future::BoxFuture;

/// A request of a workflow step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// `GET`, `POST`, `PUT` or `DELETE`.
    pub method: String,
    /// The whole URL.
    pub url: String,
    /// The headers that the template sets.
    pub headers: BTreeMap<String, String>,
    /// The body. Empty if there is none.
    pub body: String,
}

/// The response to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status code.
    pub status: u16,
    /// The headers, each with all its values.
    pub headers: BTreeMap<String, Vec<String>>,
    /// The body.
    pub body: String,
}

/// Sends requests. An implementation bounds the time and the size of the response, and does not follow redirects.
pub trait Egress: Send + Sync {
    /// Sends a request. The error says why there is no response.
    fn send(&self, request: Request) -> BoxFuture<'static, Result<Response, String>>;
}
