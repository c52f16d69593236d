//! One endpoint of the cluster: a shared HTTP/2 connection, opened when needed.
//!
//! A new connection is used only after its member has shown that it belongs to the cluster and has a supported version.
//! A member that does not answer ([`Suspicion`]) is tried last for a while, and on a new connection: the old one may take
//! 40 seconds to notice that it is dead.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use prost::Message;
use setpoint_clock::{Clock, Instant};
use setpoint_store::etcd::EtcdError;
use setpoint_webhook::{Connector, Tcp, go_text};
use tokio::sync::Mutex;

use crate::EtcdConfig;
use crate::grpc::{self, Messages, RequestBody};
use crate::messages::{StatusRequest, StatusResponse};
use crate::version::{Version, VersionError};

/// How long an endpoint that could not be reached is tried last.
const AVOID: Duration = Duration::from_secs(10);
/// As in v1.34: how often a connection is probed, how long the answer may take, and how long connecting may take.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT: Duration = Duration::from_secs(20);

type Sender = SendRequest<RequestBody>;

pub(crate) struct Endpoint {
    /// `https://host:port`.
    pub(crate) url: String,
    uri: Uri,
    /// Where the certificates are, which may be renewed.
    config: Arc<EtcdConfig>,
    /// Locked while connecting.
    connection: Mutex<Option<Sender>>,
    suspicion: Suspicion,
}

/// Whether an endpoint is tried after the others. Clones share it.
#[derive(Clone)]
pub(crate) struct Suspicion {
    clock: Clock,
    state: Arc<parking_lot::Mutex<Suspected>>,
}

#[derive(Default)]
struct Suspected {
    /// It is connecting, could not be reached, or did not answer.
    until: Option<Instant>,
    /// Its connection must not be used any more.
    needs_connection: bool,
}

impl Suspicion {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, state: Arc::default() }
    }

    /// It did not answer.
    pub(crate) fn raise(&self) {
        let until = Some(self.clock.instant() + AVOID);
        *self.state.lock() = Suspected { until, needs_connection: true };
    }

    fn set(&self, duration: Option<Duration>) {
        self.state.lock().until = duration.map(|duration| self.clock.instant() + duration);
    }

    fn is_active(&self) -> bool {
        self.state.lock().until.is_some_and(|until| self.clock.instant() < until)
    }

    fn takes_connection(&self) -> bool {
        std::mem::take(&mut self.state.lock().needs_connection)
    }
}

/// What a member says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) cluster: u64,
    pub(crate) version: Version,
}

/// Why a call failed, and whether it can be repeated.
pub(crate) struct Failure {
    pub(crate) error: EtcdError,
    /// The request has not been sent, so even a write can be repeated.
    pub(crate) is_unsent: bool,
}

impl Failure {
    fn unsent(error: EtcdError) -> Self {
        Self { error, is_unsent: true }
    }

    fn sent(error: EtcdError) -> Self {
        Self { error, is_unsent: false }
    }
}

/// Why a connection is not used.
#[derive(Clone, Debug)]
pub(crate) enum Unusable {
    /// It may work later.
    Unreachable(String),
    Unsupported(VersionError),
    /// It belongs to another cluster.
    Foreign(String),
}

impl Unusable {
    pub(crate) fn into_error(self, url: &str) -> EtcdError {
        match self {
            Self::Unreachable(why) => EtcdError::Unavailable(format!("etcd at {url}: {why}")),
            Self::Unsupported(why) => EtcdError::Refused(format!("etcd at {url}: {why}")),
            Self::Foreign(why) => EtcdError::Refused(format!("etcd at {url}: {why}")),
        }
    }
}

impl Endpoint {
    pub(crate) fn new(url: String, uri: Uri, config: Arc<EtcdConfig>, clock: Clock) -> Self {
        Self { url, uri, config, connection: Mutex::default(), suspicion: Suspicion::new(clock) }
    }

    /// Returns whether other endpoints should be tried first.
    pub(crate) fn is_avoided(&self) -> bool {
        self.suspicion.is_active()
    }

    pub(crate) fn suspicion(&self) -> &Suspicion {
        &self.suspicion
    }

    /// Sends a request to an accepted member, connecting if necessary.
    pub(crate) async fn send(
        &self,
        accept: &(dyn Fn(Member) -> Result<(), Unusable> + Sync),
        request: impl Fn(&str) -> Result<http::Request<RequestBody>, EtcdError>,
    ) -> Result<Messages, Failure> {
        let sender = self.sender(accept).await.map_err(|why| Failure::unsent(why.into_error(&self.url)))?;
        let result = exchange(sender, request(&self.url).map_err(Failure::unsent)?).await;
        result.map_err(|failure| self.located(failure))
    }

    fn located(&self, failure: Failure) -> Failure {
        let error = match failure.error {
            EtcdError::Unavailable(why) if !why.starts_with("etcdserver: ") => {
                EtcdError::Unavailable(format!("etcd at {}: {why}", self.url))
            }
            other => other,
        };
        Failure { error, ..failure }
    }

    async fn sender(
        &self,
        accept: &(dyn Fn(Member) -> Result<(), Unusable> + Sync),
    ) -> Result<Sender, Unusable> {
        let mut connection = self.connection.lock().await;
        if self.suspicion.takes_connection() {
            *connection = None;
        }
        if let Some(sender) = connection.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(sender.clone());
        }
        self.suspicion.set(Some(CONNECT));
        let connecting = tokio::time::timeout(CONNECT, self.connect()).await.unwrap_or_else(|_| {
            let why = format!("no connection within {} seconds", CONNECT.as_secs());
            Err(Unusable::Unreachable(why))
        });
        let connected = connecting.and_then(|(sender, member)| accept(member).map(|()| sender));
        self.suspicion.set(connected.is_err().then_some(AVOID));
        Ok(connection.insert(connected?).clone())
    }

    /// Connects, and asks the member who it is.
    async fn connect(&self) -> Result<(Sender, Member), Unusable> {
        let connector = self.connector().map_err(|why| Unusable::Unreachable(with_causes(&why)))?;
        let stream = connector.connect(self.uri.clone()).await;
        let stream = stream.map_err(|why| Unusable::Unreachable(go_text(&why)))?;
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .keep_alive_while_idle(true)
            .handshake(stream);
        let (sender, driver) = handshake.await.map_err(|why| Unusable::Unreachable(go_text(&why)))?;
        let url = self.url.clone();
        // Ends when the last sender is dropped or etcd closes the connection.
        tokio::spawn(async move {
            if let Err(error) = driver.await {
                tracing::debug!(url, %error, "a connection to etcd ended");
            }
        });
        let status = self.status(sender.clone()).await.map_err(|failure| self.no_http2(failure))?;
        let version = status.version.parse().map_err(Unusable::Unsupported)?;
        let cluster = status.header.map_or(0, |header| header.cluster_id);
        if status.is_learner {
            return Err(Unusable::Unreachable("it is a learner, which does not serve reads".into()));
        }
        Ok((sender, Member { cluster, version }))
    }

    /// Reads the certificates, which may have been renewed since the last connection.
    fn connector(&self) -> Result<Connector, crate::ConnectError> {
        Ok(Connector::new(&self.config.tls()?, Arc::new(Tcp))?)
    }

    async fn status(&self, sender: Sender) -> Result<StatusResponse, Failure> {
        let message = grpc::frame(&StatusRequest {});
        let request = grpc::unary(&self.url, "Maintenance/Status", message).map_err(Failure::unsent)?;
        exchange(sender, request).await?.only().await.map_err(Failure::sent)
    }

    /// Explains the failure of a first request: servers that expect TLS close a connection without it.
    fn no_http2(&self, failure: Failure) -> Unusable {
        let hint = match self.uri.scheme_str() {
            Some("http") => " (does it serve TLS? then its URL starts with https)",
            _ => "",
        };
        Unusable::Unreachable(format!("{}{hint}", failure.error))
    }
}

async fn exchange(mut sender: Sender, request: http::Request<RequestBody>) -> Result<Messages, Failure> {
    match sender.try_send_request(request).await {
        Ok(response) => Messages::new(response).map_err(Failure::sent),
        Err(mut error) => {
            let is_unsent = error.take_message().is_some();
            let why = with_causes(error.error());
            Err(Failure { error: EtcdError::Unavailable(why), is_unsent })
        }
    }
}

/// hyper's errors hide what happened in their source.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// Reads the only message of a response.
pub(crate) async fn only<T: Message + Default>(messages: Result<Messages, Failure>) -> Result<T, Failure> {
    messages?.only().await.map_err(Failure::sent)
}
