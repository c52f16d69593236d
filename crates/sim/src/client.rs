//! Fault injection for API calls.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use http::{Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use setpoint::source::Source;
use setpoint_apiserver::Body;
use setpoint_apiserver::auth::User;
use setpoint_cluster::{Connect, InProcess, in_memory};

use crate::faults::{Faults, OnCall};
use crate::link::Link;
use crate::permissions::Requests;
use crate::source::FaultySource;

/// A lost response is noticed after this long, like a client timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The user of the author's controllers. Built-in components have their own.
const OWN: &str = "system:admin";

/// The request or the response was lost.
#[derive(Debug, thiserror::Error)]
#[error("connection lost")]
struct Lost;

/// A connection with faults in its calls and watches.
#[derive(Clone)]
pub(crate) struct Faulty {
    pub(crate) inner: InProcess,
    pub(crate) faults: Faults,
    /// The way to the API server, unless it is always open.
    pub(crate) link: Option<Link>,
    /// Records what the author's controllers request.
    pub(crate) requests: Requests,
}

impl Connect for Faulty {
    fn client(&self, user: &User) -> kube::Client {
        let (connection, user) = (self.clone(), Arc::new(user.clone()));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (connection, user) = (connection.clone(), user.clone());
            async move { connection.call(&user, in_memory(request).await).await }
        });
        kube::Client::new(service, "default")
    }

    fn source(&self, user: &User) -> Arc<dyn Source> {
        let inner = self.inner.source(user);
        let inner = match &self.link {
            Some(link) => link.source(inner),
            None => inner,
        };
        Arc::new(FaultySource::new(inner, self.faults.clone()))
    }
}

impl Faulty {
    async fn call(&self, user: &Arc<User>, request: Request<Bytes>) -> Result<Response<Body>, Lost> {
        if let Some(link) = &self.link {
            link.through().await.map_err(|_| Lost)?;
        }
        let recorded = (user.name == OWN).then(|| self.requests.record(&request)).flatten();
        let response = call(&self.inner, user, &self.faults, request).await;
        if let (Some(recorded), Ok(response)) = (recorded, &response) {
            recorded.answered(response.status());
        }
        response
    }
}

async fn call(
    inner: &InProcess,
    user: &Arc<User>,
    faults: &Faults,
    request: Request<Bytes>,
) -> Result<Response<Body>, Lost> {
    let line = format!("{} {}", request.method(), request.uri());
    let is_discovery = request.uri().path() == "/apis";
    faults.step().await;
    let denied = faults.denied(request.uri().path());
    let fault =
        denied.or_else(|| is_write(&request).then(|| faults.on_write(request.uri().path())).flatten());
    let answer = |request| inner.call(user, request).boxed();
    let response = match fault {
        None if is_discovery => Ok(without_dead_groups(answer(request).await, faults).await),
        None => Ok(answer(request).await),
        Some(OnCall::Fail(code)) => Ok(refusal(code)),
        Some(OnCall::Delay(duration)) => {
            tokio::time::sleep(duration).await;
            Ok(answer(request).await)
        }
        Some(OnCall::DropBefore) => lost().await,
        Some(OnCall::DropAfter) => {
            answer(request).await;
            lost().await
        }
        Some(OnCall::CrashBefore) => match faults.crash().await {},
        Some(OnCall::CrashAfter) => {
            answer(request).await;
            match faults.crash().await {}
        }
    };
    faults.step().await;
    let outcome =
        response.as_ref().map_or("lost".to_owned(), |response| response.status().as_str().to_owned());
    faults.trace().record(format_args!("{line} {outcome}"));
    response
}

/// Returns the served groups. Groups whose servers are down are reported as by an aggregating API server.
async fn without_dead_groups(response: Response<Body>, faults: &Faults) -> Response<Body> {
    let dead = faults.dead_groups();
    if dead.is_empty() {
        return response;
    }
    let (head, body) = response.into_parts();
    let body = body.collect().await;
    let mut groups: Value = serde_json::from_slice(&body).unwrap_or_default();
    let Some(items) = groups["items"].as_array_mut() else {
        return Response::from_parts(head, Body::full(body));
    };
    for group in dead {
        if !items.iter().any(|item| item["metadata"]["name"] == group) {
            items.push(json!({"metadata": {"name": group}, "versions": [{"version": "v1"}]}));
        }
        let of_group = items.iter_mut().filter(|item| item["metadata"]["name"] == group);
        for version in of_group.filter_map(|item| item["versions"].as_array_mut()).flatten() {
            version["freshness"] = json!("Stale");
            version["resources"] = json!([]);
        }
    }
    Response::from_parts(head, Body::full(groups.to_string()))
}

/// Events are best effort and say nothing about the state, so losing one is not a fault worth testing.
fn is_write(request: &Request<Bytes>) -> bool {
    request.method() != Method::GET && !request.uri().path().contains("/events")
}

async fn lost<T>() -> Result<T, Lost> {
    tokio::time::sleep(TIMEOUT).await;
    Err(Lost)
}

fn refusal(code: u16) -> Response<Body> {
    let reason = match code {
        403 => "Forbidden",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
        "reason": reason, "message": "refused by the fault layer", "metadata": {}});
    let mut response = Response::new(Body::full(status.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
