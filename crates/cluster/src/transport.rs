//! The API server as its own process reaches it: a call is a function call.
//!
//! Whoever calls says who they are, and is authorized as any client is; what a part of the control plane is refused
//! for want of a right is noted.

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

/// The namespace of calls that name none, as in a kubeconfig.
const DEFAULT_NAMESPACE: &str = "default";

/// How parts of a control plane reach its API server, each as the user that it is.
pub trait Connect: Send + Sync {
    fn client(&self, user: &User) -> kube::Client;

    fn source(&self, user: &User) -> Arc<dyn Source>;
}

/// Without sockets, TLS or HTTP framing. Cheap to clone.
#[derive(Clone)]
pub struct InProcess {
    api: ApiServer,
    denials: Denials,
}

impl InProcess {
    pub fn new(api: ApiServer, denials: Denials) -> Self {
        Self { api, denials }
    }

    /// Answers one request of a part of the control plane.
    pub async fn call(&self, user: &Arc<User>, request: Request<Bytes>) -> Response<Body> {
        let asked = (request.method().clone(), request.uri().clone());
        let answer = self.api.handle(user.clone(), request).await;
        if answer.extensions().get::<LacksRights>().is_some() {
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
        Arc::new(InProcessSource::new(self.api.clone(), user.clone()).noting(&self.denials))
    }
}

/// A client that acts as `user`.
pub fn in_process_client(api: &ApiServer, user: User) -> kube::Client {
    InProcess::new(api.clone(), Denials::default()).client(&user)
}

/// A request with its body. It is in memory already, so collecting it copies nothing.
pub async fn in_memory(request: Request<kube::client::Body>) -> Request<Bytes> {
    let (head, body) = request.into_parts();
    // A body of the client's own that fails to be read was never sent.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    Request::from_parts(head, body)
}
