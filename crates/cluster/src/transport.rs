//! A `kube::Client` that calls the API server as a function.

use std::convert::Infallible;

use http::{Request, Response};
use http_body_util::BodyExt;
use setpoint_apiserver::auth::User;
use setpoint_apiserver::{ApiServer, Body};

/// The namespace of calls that name none, as in a kubeconfig.
const DEFAULT_NAMESPACE: &str = "default";

/// A client that acts as `user`, without sockets, TLS or HTTP framing.
pub fn in_process_client(api: &ApiServer, user: User) -> kube::Client {
    let api = api.clone();
    let service = tower::service_fn(move |request: Request<kube::client::Body>| {
        let (api, user) = (api.clone(), user.clone());
        async move { Ok::<_, Infallible>(call(&api, user, request).await) }
    });
    kube::Client::new(service, DEFAULT_NAMESPACE)
}

/// One call. Request bodies are in memory already, so collecting them copies nothing.
async fn call(api: &ApiServer, user: User, request: Request<kube::client::Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    // A body of the client's own that fails to be read was never sent.
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    api.handle(user, Request::from_parts(head, body)).await
}
