//! Requests from the server to itself: its own objects are written the same way as clients' objects.

use std::sync::Arc;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Method, Request, Response};
use serde_json::Value;

use crate::audit::{self, Received, Record};
use crate::auth::{Decision, User};
use crate::body::Body;
use crate::chain::{Caller, Context};
use crate::query::Query;
use crate::request::Target;
use crate::route;
use crate::server::Server;
use crate::status::Status;

/// The server's name as a field manager.
pub(crate) const NAME: &str = "kube-apiserver";

/// Adds another field manager to a path: one of the controllers built into v1.34's server.
pub(crate) fn managed_by(manager: &str, path: &str) -> String {
    format!("{path}?fieldManager={manager}")
}

impl Server {
    /// Sends a request as the server, and returns whether it changed anything: the codes in `fine` mean that it did
    /// not. A patch is a merge patch; no body is null.
    ///
    /// Boxed to break the recursion: handling a request may send another, which is handled the same way.
    pub(crate) fn loopback_request<'a>(
        &'a self,
        method: Method,
        path: &'a str,
        body: &'a Value,
        fine: &'a [u16],
    ) -> BoxFuture<'a, Result<bool, Status>> {
        self.own(request(&method, path, body), fine)
    }

    /// The same for server-side apply.
    pub(crate) fn loopback_apply<'a>(
        &'a self,
        path: &'a str,
        body: &'a Value,
        fine: &'a [u16],
    ) -> BoxFuture<'a, Result<bool, Status>> {
        let request = request(&Method::PATCH, path, body).map(|mut request| {
            let apply = HeaderValue::from_static("application/apply-patch+yaml");
            request.headers_mut().insert(CONTENT_TYPE, apply);
            request
        });
        self.own(request, fine)
    }

    fn own<'a>(
        &'a self,
        request: Result<Request<Bytes>, Status>,
        fine: &'a [u16],
    ) -> BoxFuture<'a, Result<bool, Status>> {
        async move {
            let request = request?;
            let (method, path) = (request.method(), request.uri().path());
            let response = self.handle_loopback(&request).await?;
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

    async fn handle_loopback(&self, request: &Request<Bytes>) -> Result<Response<Body>, Status> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let query = Query::parse(uri.query().unwrap_or(""));
        let target = Target::parse(method, uri.path(), &query)?;
        let user = User::system("system:apiserver");
        let caller = Caller::InProcess(Arc::new(user.clone()));
        let id = audit::id(self, &caller, headers);
        let record = Record::begin(self.audit.as_ref(), &caller, id.as_ref(), None);
        let context = Context { audit: record, ..Context::default() };
        let received = Received { user: Some(&user), method, uri, headers, target: &target };
        if context.audit.received(&received).await.is_err() {
            return Err(Status::internal("failed to store audit event"));
        }
        context.audit.authorized(&Decision::allow(""));
        let parts = route::AuthorizedRequest {
            server: self,
            user: &user,
            method,
            query: &query,
            headers,
            body: request.body(),
            context: &context,
        };
        let response = route::handle(&parts, &target).await.unwrap_or_else(|status| {
            context.audit.status(&status);
            status.into_response()
        });
        Ok(context.audit.complete(uri, response).await)
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
