//! Requests of the server to itself: its own objects are written in no other way than those of clients.

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{Method, Request};
use serde_json::Value;

use crate::auth::User;
use crate::route;
use crate::server::Server;
use crate::status::Status;

/// The server as a manager of fields.
pub(crate) const NAME: &str = "kube-apiserver";

impl Server {
    /// Sends a request in the name of the server, and returns whether that changed anything: codes that are
    /// fine too say that it did not. A patch is a merge patch; no body is null.
    ///
    /// The box breaks a circle: answering a request may take another, which is answered in the same way.
    pub(crate) fn own_request<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: &'a Value,
        fine: &'a [u16],
    ) -> BoxFuture<'a, Result<bool, Status>> {
        async move {
            let request = request(&method, path, body)?;
            let response = route::handle(self, &User::system("system:apiserver"), &request).await;
            if response.status().is_success() {
                return Ok(true);
            }
            if fine.contains(&response.status().as_u16()) {
                return Ok(false);
            }
            let answer = response.into_body().collect().await;
            let text = String::from_utf8_lossy(&answer);
            Err(Status::internal(format_args!("cannot {method} {path}: {text}")))
        }
        .boxed()
    }
}

fn request(method: &Method, path: &str, body: &Value) -> Result<Request<Bytes>, Status> {
    let body = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let mut request = Request::builder().method(method).uri(path).header(USER_AGENT, NAME);
    if *method == Method::PATCH {
        request = request.header(CONTENT_TYPE, "application/merge-patch+json");
    }
    request.body(body).map_err(Status::internal)
}
