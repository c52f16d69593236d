//! The link between one replica and the API server: open, cut, or paused with the replica.
//!
//! Several managers, each on its own [`Link`], are replicas of one controller. A cut link loses calls. A paused link
//! simulates a replica that is suspended (a stopped process, or a long pause of its host): nothing passes in either
//! direction, and requests that were about to be sent find their connection closed after the resume.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response};
use jiff::Timestamp;
use parking_lot::Mutex;
use setpoint::source::{ObjectList, Selection, Source, WatchItem};
use setpoint::{ClientError, Clock, Kind};
use setpoint_apiserver::Body;
use setpoint_apiserver::auth::User;
use setpoint_cluster::{Connect, InProcess, in_memory};
use tokio::sync::watch;

/// The timeout of a call on a cut link.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The link of one replica. Cheap to clone; clones share the link.
///
/// ```
/// use setpoint_cluster::Components;
/// use setpoint_sim::{Link, World};
/// World::simulate(1, Components::default(), Vec::new(), async |world| {
///     let link = Link::new(world.clock());
///     let manager = world.replica(&link, &Components::default());
///     link.cut();
///     assert!(manager.context().client.get_path(&["version"], &[]).await.is_err());
///     link.mend();
///     assert!(manager.context().client.get_path(&["version"], &[]).await.is_ok());
/// });
/// ```
#[derive(Clone)]
pub struct Link(Arc<Line>);

struct Line {
    clock: Clock,
    state: watch::Sender<State>,
    writes: Mutex<Vec<Write>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Cut,
    Paused,
}

/// A write that reached the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    pub at: Timestamp,
    pub method: String,
    pub path: String,
    pub code: u16,
}

/// The call was lost.
#[derive(Debug, thiserror::Error)]
#[error("connection lost")]
pub(crate) struct Lost;

impl Link {
    pub fn new(clock: &Clock) -> Self {
        let state = watch::Sender::new(State::Open);
        Self(Arc::new(Line { clock: clock.clone(), state, writes: Mutex::default() }))
    }

    /// Cuts the link: calls are lost, and watches are silent.
    pub fn cut(&self) {
        self.0.state.send_replace(State::Cut);
    }

    /// Pauses the link: everything stands still.
    pub fn pause(&self) {
        self.0.state.send_replace(State::Paused);
    }

    /// Restores the link.
    pub fn mend(&self) {
        self.0.state.send_replace(State::Open);
    }

    /// Returns the writes that reached the API server, except for events, which are best effort.
    pub fn writes(&self) -> Vec<Write> {
        self.0.writes.lock().clone()
    }

    async fn call(
        &self,
        inner: &InProcess,
        user: &Arc<User>,
        request: Request<kube::client::Body>,
    ) -> Result<Response<Body>, Lost> {
        self.through().await?;
        let request = in_memory(request).await;
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let response = inner.call(user, request).boxed().await;
        if method != Method::GET && !path.contains("/events") {
            let (at, code) = (self.0.clock.now(), response.status().as_u16());
            self.0.writes.lock().push(Write { at, method: method.to_string(), path, code });
        }
        Ok(response)
    }

    /// Waits until the call goes through, or is known to be lost.
    pub(crate) async fn through(&self) -> Result<(), Lost> {
        let state = *self.0.state.borrow();
        match state {
            State::Open => Ok(()),
            State::Cut => {
                self.0.clock.sleep(TIMEOUT).await;
                Err(Lost)
            }
            State::Paused => {
                self.open().await;
                Err(Lost)
            }
        }
    }

    /// Returns a source that is read over the link.
    pub(crate) fn source(&self, inner: Arc<dyn Source>) -> Arc<dyn Source> {
        Arc::new(Linked { inner, link: self.clone() })
    }

    async fn open(&self) {
        let mut state = self.0.state.subscribe();
        let _ = state.wait_for(|state| *state == State::Open).await;
    }
}

/// A connection over a link.
pub(crate) struct OverLink {
    pub(crate) inner: InProcess,
    pub(crate) link: Link,
}

impl Connect for OverLink {
    fn client(&self, user: &User) -> kube::Client {
        let (inner, link, user) = (self.inner.clone(), self.link.clone(), Arc::new(user.clone()));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (inner, link, user) = (inner.clone(), link.clone(), user.clone());
            async move { link.call(&inner, &user, request).await }
        });
        kube::Client::new(service, "default")
    }

    fn source(&self, user: &User) -> Arc<dyn Source> {
        self.link.source(self.inner.source(user))
    }
}

/// A source over a link.
struct Linked {
    inner: Arc<dyn Source>,
    link: Link,
}

impl Source for Linked {
    fn list<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
    ) -> BoxFuture<'a, Result<ObjectList, ClientError>> {
        async move {
            self.link.through().await.map_err(|lost| ClientError::Transport(Box::new(lost)))?;
            self.inner.list(kind, selection).await
        }
        .boxed()
    }

    fn watch<'a>(
        &'a self,
        kind: &'a Kind,
        selection: &'a Selection,
        resource_version: &'a str,
    ) -> BoxFuture<'a, Result<BoxStream<'static, Result<WatchItem, ClientError>>, ClientError>> {
        async move {
            self.link.through().await.map_err(|lost| ClientError::Transport(Box::new(lost)))?;
            let items = self.inner.watch(kind, selection, resource_version).await?;
            let link = self.link.clone();
            let late = move |item| {
                let link = link.clone();
                async move {
                    link.open().await;
                    item
                }
            };
            Ok(items.then(late).boxed())
        }
        .boxed()
    }

    fn shares_objects(&self) -> bool {
        self.inner.shares_objects()
    }
}
