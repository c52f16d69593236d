//! Reads documents from extension API servers as a system user, with a timeout and a size limit.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use setpoint_webhook::no_body;
use tokio::time::timeout_at;

use super::Aggregation;
use super::proxy::{Forward, outgoing};
use super::services::ApiService;
use crate::auth::User;
use crate::header;
use crate::query::Query;

/// A document to read.
pub(super) struct Wanted<'a> {
    pub(super) path: &'a str,
    pub(super) user: &'a User,
    pub(super) accept: &'static str,
    /// The ETag of the known version.
    pub(super) known: &'a str,
    /// From the first byte sent to the last byte received.
    pub(super) timeout: Duration,
    pub(super) bytes: usize,
}

/// A document, or an error response.
pub(super) struct Fetched {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

impl Fetched {
    pub(super) fn header(&self, name: &HeaderName) -> &str {
        header::text(&self.headers, name)
    }

    pub(super) fn etag(&self) -> &str {
        self.header(&ETAG)
    }
}

impl Aggregation {
    /// Reads a document, whether or not the server is marked as available.
    pub(super) async fn fetch(&self, service: &ApiService, wanted: &Wanted<'_>) -> Result<Fetched, String> {
        let end = self.clock.instant() + wanted.timeout;
        let work = self.fetch_now(service, wanted);
        timeout_at(end, work).await.unwrap_or_else(|_| Err("context deadline exceeded".into()))
    }

    async fn fetch_now(&self, service: &ApiService, wanted: &Wanted<'_>) -> Result<Fetched, String> {
        let remote = service.remote.as_ref().ok_or("it is served by this server")?;
        let transport = self.backends.transport(&service.name, remote)?;
        let host = self.backends.resolve(remote).await.map_err(|why| why.to_string())?;
        let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static(wanted.accept))]);
        if let Ok(known) = HeaderValue::from_str(wanted.known)
            && !known.is_empty()
        {
            headers.insert(IF_NONE_MATCH, known);
        }
        let request = Forward {
            method: &Method::GET,
            path: wanted.path,
            query: &Query::default(),
            headers: &headers,
            user: wanted.user,
            client: None,
            audit_id: None,
            is_discovery: false,
            is_long_running: false,
        };
        let response = transport.send(outgoing(&request, &host, no_body())?).await;
        let (head, body) = response.map_err(|why| why.0)?.into_parts();
        let body = Limited::new(body, wanted.bytes).collect().await.map_err(|why| match why
            .is::<LengthLimitError>()
        {
            true => format!("the document is longer than {} bytes", wanted.bytes),
            false => why.to_string(),
        })?;
        Ok(Fetched { status: head.status, headers: head.headers, body: body.to_bytes() })
    }
}
