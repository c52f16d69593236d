//! What a process of controllers shares, and the order in which it starts and stops.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::controller::Runnable;
use crate::informer::Informers;
use crate::recorder::Recorder;
use crate::source::Source;
use crate::{Client, Runtime};

/// The shared parts that a controller is built from. Cheap to clone.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    pub informers: Informers,
    pub runtime: Runtime,
}

/// Runs controllers: informers first, then workers; on stop, workers drain, then informers end.
pub struct Manager {
    context: Context,
}

impl Manager {
    /// A manager on a client, with the source its informers read from.
    pub fn new(client: Client, source: Arc<dyn Source>, runtime: Runtime) -> Self {
        let informers = Informers::new(source, runtime.clone());
        Self { context: Context { client, informers, runtime } }
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    pub fn add(&mut self, runnable: impl Runnable) {
        let _ = runnable;
        todo!()
    }

    /// Runs everything until `stop`, then shuts down in order.
    pub async fn run(self, stop: CancellationToken) {
        let _ = stop;
        todo!()
    }
}

impl Context {
    /// A recorder of events that come from `component` (`replicaset-controller`).
    pub fn recorder(&self, component: &'static str) -> Recorder {
        let _ = component;
        todo!()
    }
}
