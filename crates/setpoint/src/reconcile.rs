//! Stage 9: what a controller author writes.

use std::error::Error;
use std::fmt::{Debug, Display, Write};
use std::hash::Hash;
use std::time::Duration;

use crate::{ClientError, object::DecodeError};

/// What names the work: usually [`Key`](crate::Key).
///
/// ```
/// fn takes_a_key(_: impl setpoint::reconcile::WorkKey) {}
/// takes_a_key(setpoint::Key::cluster("node-1"));
/// takes_a_key("whatever can be told apart, ordered and shown".to_owned());
/// ```
pub trait WorkKey: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static {}

impl<T: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static> WorkKey for T {}

/// Drives one object toward its setpoint.
///
/// Called with a key and nothing else, at any time, any number of times: what changed is not said,
/// because a reconciler that needs to know is wrong after a restart. A settled world makes no writes.
///
/// ```
/// use setpoint::{Key, Outcome, ReconcileError, Reconciler};
/// struct Greeter;
/// impl Reconciler for Greeter {
///     type Key = Key;
///     async fn reconcile(&self, key: &Key) -> Result<Outcome, ReconcileError> {
///         println!("hello, {key}");
///         Ok(Outcome::Settled)
///     }
/// }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// assert_eq!(Greeter.reconcile(&Key::cluster("world")).await.unwrap(), Outcome::Settled);
/// # });
/// ```
pub trait Reconciler: Send + Sync + 'static {
    /// What names the work.
    type Key: WorkKey;

    /// One step toward the setpoint; [`Outcome`] and [`ReconcileError`] say what comes next.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;
}

/// How a successful reconcile ended.
///
/// ```
/// use std::time::Duration;
/// use setpoint::Outcome;
/// assert_eq!(Outcome::Settled.and(Outcome::CheckAfter(Duration::from_secs(9))), Outcome::CheckAfter(Duration::from_secs(9)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing to do until something changes.
    Settled,
    /// Look again after this time even if nothing changes.
    CheckAfter(Duration),
    /// Look again soon, with the back-off of a failure but without counting as one.
    Requeue,
}

impl Outcome {
    /// What satisfies both: the one that looks again sooner.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Requeue, _) | (_, Self::Requeue) => Self::Requeue,
            (Self::CheckAfter(one), Self::CheckAfter(another)) => Self::CheckAfter(one.min(another)),
            (Self::Settled, outcome) | (outcome, Self::Settled) => outcome,
        }
    }
}

/// How a reconcile failed, and so what happens next.
///
/// ```
/// use setpoint::ReconcileError;
/// let error = ReconcileError::retry("create pod web-1");
/// assert_eq!(error.to_string(), "create pod web-1");
/// assert_eq!(error.class(), "retry");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// Transient: try again with exponential back-off.
    #[error("{attempted}")]
    Retry {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Somebody else was faster: try again shortly, on fresh state.
    #[error("{attempted}")]
    Conflict {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// Trying again cannot help until something changes: report and wait.
    #[error("{attempted}")]
    Terminal {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
}

impl ReconcileError {
    /// A transient failure of what was attempted.
    pub fn retry(attempted: impl Into<String>) -> Self {
        Self::Retry { attempted: attempted.into(), source: None }
    }

    /// A failure because somebody else was faster.
    pub fn conflict(attempted: impl Into<String>) -> Self {
        Self::Conflict { attempted: attempted.into(), source: None }
    }

    /// A failure that trying again cannot mend.
    pub fn terminal(attempted: impl Into<String>) -> Self {
        Self::Terminal { attempted: attempted.into(), source: None }
    }

    /// The class in a word, for logs and metrics.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Conflict { .. } => "conflict",
            Self::Terminal { .. } => "terminal",
        }
    }

    /// What kind of failure it was, in a word: `network`, `unavailable`, `conflict`, `forbidden`, `invalid`,
    /// `not_found`, or the [class](Self::class) where no call to the API server failed.
    pub fn category(&self) -> &'static str {
        self.of_client().map_or(self.class(), ClientError::category)
    }

    /// The API server's status code, if a call to it failed and it answered.
    pub fn code(&self) -> Option<u16> {
        self.of_client()?.code()
    }

    /// The call to the API server that failed, if one did.
    fn of_client(&self) -> Option<&ClientError> {
        let mut source = self.source();
        while let Some(error) = source {
            if let Some(error) = error.downcast_ref::<ClientError>() {
                return Some(error);
            }
            source = error.source();
        }
        None
    }

    /// What was attempted and why it failed, in one line.
    ///
    /// ```
    /// use setpoint::{ClientError, reconcile::Attempting};
    /// let refused: Result<(), _> = Err(ClientError::Transport("connection refused".into()));
    /// let error = refused.attempting("create pod web-1").unwrap_err();
    /// assert_eq!(error.report(), "create pod web-1: no answer from the API server: connection refused");
    /// ```
    pub fn report(&self) -> String {
        let mut line = self.to_string();
        let mut source = self.source();
        while let Some(error) = source {
            let _ = write!(line, ": {error}");
            source = error.source();
        }
        line
    }
}

/// Says what was attempted when a call failed: `client.create(..).await.attempting("create pod")?`.
///
/// ```
/// use setpoint::{ClientError, reconcile::Attempting};
/// let refused: Result<(), _> = Err(ClientError::from_reply(409, &Default::default(), b""));
/// assert_eq!(refused.attempting("update pod web-1").unwrap_err().class(), "conflict");
/// ```
pub trait Attempting<T> {
    /// The same result, with an error of the class that fits, saying `what` was attempted.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_refusal_leads_to_depends_on_its_kind() {
        let check = |code: u16, class: &str, category: &str| {
            let refused: Result<(), _> = Err(ClientError::from_reply(code, &Default::default(), b""));
            let error = refused.attempting("update pod web-1").expect_err("refused");
            assert_eq!((error.class(), error.category()), (class, category), "{code}");
        };
        check(500, "retry", "unavailable");
        check(503, "retry", "unavailable");
        check(504, "retry", "unavailable");
        check(429, "retry", "unavailable");
        check(409, "conflict", "conflict");
        check(401, "terminal", "forbidden");
        check(403, "terminal", "forbidden");
        check(400, "terminal", "invalid");
        check(422, "terminal", "invalid");
        check(404, "terminal", "not_found");
        let silent: Result<(), _> = Err(ClientError::Transport("timed out".into()));
        let error = silent.attempting("create pod web-1").expect_err("no answer");
        assert_eq!((error.class(), error.category()), ("retry", "network"));
        assert_eq!(ReconcileError::terminal("read a bad spec").category(), "terminal");
    }
}
