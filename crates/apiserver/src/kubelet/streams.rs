//! Streams to pods: which are forwarded unchanged, and which are terminated by this server.

use std::sync::Arc;

use http::Response;
use setpoint_clock::Clock;

use super::{IDLE, Kubelets, spdy_in_websocket, translate};
use crate::body::Body;
use crate::features::Features;
use crate::metrics::StreamMetrics;
use crate::proxy::{self, Location, Original, headers};
use crate::status::Status;
use crate::tunnel::Idle;
use crate::websocket;

/// What a client requests from a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A process: exec, attach.
    Process(Channels),
    /// Connections to ports.
    Ports,
}

/// The channels of a process that a client wants.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Channels {
    pub(crate) stdin: bool,
    pub(crate) stdout: bool,
    pub(crate) stderr: bool,
    pub(crate) tty: bool,
}

/// A request for a stream.
pub(crate) struct Request<'a> {
    pub(crate) original: Original<'a>,
    /// The stream on the kubelet.
    pub(crate) location: Location,
    pub(crate) kubelets: &'a Arc<Kubelets>,
    pub(crate) metrics: &'a Arc<StreamMetrics>,
    pub(crate) clock: &'a Clock,
    pub(crate) features: &'a Features,
}

/// Connects a client and a kubelet.
pub(crate) async fn connect(request: Request<'_>, wanted: Wanted) -> Result<Response<Body>, Status> {
    let headers = request.original.headers;
    match wanted {
        Wanted::Process(channels) if is_translated(&request) => Ok(translate::answer(request, channels)),
        Wanted::Ports if is_unwrapped(&request) => spdy_in_websocket::answer(request).await,
        _ if !headers::is_upgrade(headers) => Err(Status::bad_request("Upgrade request required")),
        _ => {
            let Request { original, location, kubelets, clock, .. } = request;
            let idle = Idle::new(clock.clone(), IDLE);
            proxy::upgrade(&*kubelets.transport()?, &original, &location, idle).await
        }
    }
}

fn is_translated(request: &Request<'_>) -> bool {
    let is_known = |protocol: &str| protocol == translate::PROTOCOL;
    request.features.has("TranslateStreamCloseWebsocketRequests")
        && websocket::proposes(request.original.headers, is_known)
}

fn is_unwrapped(request: &Request<'_>) -> bool {
    let is_known = |protocol: &str| spdy_in_websocket::inner_protocol(protocol).is_some();
    request.features.has("PortForwardWebsockets") && websocket::proposes(request.original.headers, is_known)
}
