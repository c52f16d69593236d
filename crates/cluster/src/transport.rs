//! The in-process transport: a request is a function call.
//!
//! Callers state their identity and are authorized like any client. Requests of built-in parts that are denied for lack
//! of permission are recorded.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use setpoint::source::Source;
use setpoint_apiserver::auth::User;
use setpoint_apiserver::status::LacksRights;
use setpoint_apiserver::{ApiServer, Body};

use crate::{Denials, InProcessSource};

/// The default namespace, as in a kubeconfig.
const DEFAULT_NAMESPACE: &str = "default";

/// Connects parts of a control plane to its API server, each with its own identity.
pub trait Connect: Send + Sync {
    fn client(&self, user: &User) -> kube::Client;

    fn source(&self, user: &User) -> Arc<dyn Source>;
}

/// A connection without sockets, TLS or HTTP framing. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    api: ApiServer,
    denials: Denials,
}

impl InProcess {
    pub fn new(api: ApiServer, denials: Denials) -> Self {
        Self { api, denials }
    }

    /// Handles a request from a part of the control plane.
    pub async fn call(&self, user: &Arc<User>, request: Request<Bytes>) -> Response<Body> {
        let asked = (request.method().clone(), request.uri().clone());
        // Whom a part acts as may lack rights; that is not for the part to have.
        let is_own = !request.headers().contains_key("impersonate-user");
        let answer = self.api.handle(user.clone(), request).await;
        if is_own && answer.extensions().get::<LacksRights>().is_some() {
            self.denials.note(user, &format!("{} {}", asked.0, asked.1.path()));
        }
        answer
    }
}

impl Connect for InProcess {
    fn client(&self, user: &User) -> kube::Client {
        let (connection, user) = (self.clone(), Arc::new(user.clone()));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (connection, user) = (connection.clone(), user.clone());
            async move { Ok::<_, Infallible>(connection.call(&user, in_memory(request).await).await) }
        });
        kube::Client::new(service, DEFAULT_NAMESPACE)
    }

    fn source(&self, user: &User) -> Arc<dyn Source> {
        Arc::new(InProcessSource::new(self.api.clone(), user.clone()).tracking(&self.denials))
    }
}

/// Creates a client that acts as `user`.
pub fn in_process_client(api: &ApiServer, user: User) -> kube::Client {
    InProcess::new(api.clone(), Denials::default()).client(&user)
}

/// Collects the body of a request. It is already in memory, so this copies nothing.
pub async fn in_memory(request: Request<kube::client::Body>) -> Request<Bytes> {
    let (head, body) = request.into_parts();
    // A body that the client itself failed to produce was never sent.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Request::from_parts(head, body)
}
