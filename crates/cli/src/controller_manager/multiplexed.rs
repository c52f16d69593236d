//! A client whose requests share a connection.
//!
//! Controllers make many small requests concurrently. With HTTP/2, they share one connection, and concurrent requests
//! are sent together. Watches do not use this client: they never end, and an API server allows about a hundred streams
//! per connection, so too many of them would leave no room for requests.

use std::time::Duration;

use http::Request;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client as Connections;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use tower::util::MapRequestLayer;
use tower::{BoxError, ServiceBuilder};

/// If the server has been silent for this long, it is pinged, and the connection is given up if there is no response in
/// time, because all requests depend on it. The values are client-go's.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Creates a client for the API server in `config`. Its requests pass through `prepare` first. It does not retry failed
/// requests: that is up to the caller.
pub(crate) fn client(
    config: &kube::Config,
    prepare: impl Fn(Request<Body>) -> Request<Body> + Clone + Send + 'static,
) -> kube::Result<kube::Client> {
    let prepare = MapRequestLayer::new(prepare);
    if config.proxy_url.is_some() || config.tls_server_name.is_some() {
        return Ok(ClientBuilder::try_from(config.clone())?.with_layer(&prepare).build());
    }
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(config.connect_timeout);
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(config.rustls_client_config()?)
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(connector);
    let connections: Connections<_, Body> = Connections::builder(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_keep_alive_interval(PING_INTERVAL)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(prepare)
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(connections);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}
