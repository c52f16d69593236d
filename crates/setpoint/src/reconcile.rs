//! Stage 9: what a controller author writes.

use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::time::Duration;

use crate::{ClientError, object::DecodeError};

/// What names the work: usually [`Key`](crate::Key).
pub trait WorkKey: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static {}

impl<T: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static> WorkKey for T {}

/// Drives one object toward its setpoint.
///
/// Called with a key and nothing else, at any time, any number of times: what changed is not said,
/// because a reconciler that needs to know is wrong after a restart. A settled world makes no writes.
pub trait Reconciler: Send + Sync + 'static {
    type Key: WorkKey;

    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;
}

/// How a successful reconcile ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Settled,
    /// Look again after this time even if nothing changes.
    CheckAfter(Duration),
    /// Look again soon, with the back-off of a failure but without counting as one.
    Requeue,
}

/// How a reconcile failed, and so what happens next.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Transient: try again with exponential back-off.
    #[error("{attempted}")]
    Retry {
        attempted: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Somebody else was faster: try again shortly, on fresh state.
    #[error("{attempted}")]
    Conflict {
        attempted: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Trying again cannot help until something changes: report and wait.
    #[error("{attempted}")]
    Terminal {
        attempted: String,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
}

impl ReconcileError {
    pub fn retry(attempted: impl Into<String>) -> Self {
        Self::Retry { attempted: attempted.into(), source: None }
    }

    pub fn terminal(attempted: impl Into<String>) -> Self {
        Self::Terminal { attempted: attempted.into(), source: None }
    }
}

/// Says what was attempted when a call failed: `client.create(..).await.attempting("create pod")?`.
pub trait Attempting<T> {
    fn attempting(self, what: impl Into<String>) -> Result<T, ReconcileError>;
}

impl<T> Attempting<T> for Result<T, ClientError> {
    fn attempting(self, what: impl Into<String>) -> Result<T, ReconcileError> {
        self.map_err(|error| error.into_reconcile_error(what.into()))
    }
}

impl From<DecodeError> for ReconcileError {
    fn from(error: DecodeError) -> Self {
        Self::Terminal { attempted: "read a cached object".into(), source: Some(Box::new(error)) }
    }
}
