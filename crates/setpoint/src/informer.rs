//! Stage 5: one pipeline per kind and selection, shared by every controller.

use std::sync::Arc;

use crate::handler::Handler;
use crate::indexer::IndexFn;
use crate::lister::Lister;
use crate::source::{Selection, Source};
use crate::{Kind, Runtime, View};

/// All informers of a process: one per kind and selection, made on first request, started together.
#[derive(Clone)]
pub struct Informers {
    _source: Arc<dyn Source>,
}

/// A handle to a shared informer.
#[derive(Clone)]
pub struct Informer {}

impl Informers {
    pub fn new(source: Arc<dyn Source>, runtime: Runtime) -> Self {
        let _ = runtime;
        Self { _source: source }
    }

    /// Runs every informer, also those that are asked for later, until `stop`. Dropping the future ends
    /// them all.
    pub async fn run(&self, stop: tokio_util::sync::CancellationToken) {
        let _ = stop;
        todo!()
    }

    /// The informer of all objects of a view's kind.
    pub fn of<V: View>(&self) -> Informer {
        self.select(&Kind::of::<V>(), Selection::default())
    }

    /// The informer of a selection of a kind's objects.
    pub fn select(&self, kind: &Kind, selection: Selection) -> Informer {
        let _ = (kind, selection);
        todo!()
    }
}

impl Informer {
    /// Adds a handler, before or after the start: it is told of everything in the cache first.
    pub fn add_handler(&self, handler: impl Handler) {
        let _ = handler;
        todo!()
    }

    /// Adds an index under a name; the same name twice is the same index.
    pub fn add_index(&self, name: &'static str, index: IndexFn) {
        let _ = (name, index);
        todo!()
    }

    pub fn lister<V: View>(&self) -> Lister<V> {
        todo!()
    }

    /// Whether the first list is in the cache and every handler has been told of it.
    pub fn has_synced(&self) -> bool {
        todo!()
    }

    /// Waits until [`has_synced`](Self::has_synced).
    pub async fn synced(&self) {
        todo!()
    }
}
