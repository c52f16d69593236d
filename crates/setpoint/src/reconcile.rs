//! Stage 9: the reconciler, which is the part that controller authors write.

use std::error::Error;
use std::fmt::{Debug, Display, Write};
use std::hash::Hash;
use std::time::Duration;

use crate::{ClientError, object::DecodeError};

/// Identifies a unit of work: usually a [`Key`](crate::Key).
///
/// ```
/// fn takes_a_key(_: impl setpoint::reconcile::WorkKey) {}
/// takes_a_key(setpoint::Key::cluster("node-1"));
/// takes_a_key("any type that is ordered and displayable".to_owned());
/// ```
pub trait WorkKey: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static {}

impl<T: Clone + Ord + Hash + Debug + Display + Send + Sync + 'static> WorkKey for T {}

/// Drives one object toward its desired state.
///
/// A reconciler is called with nothing but a key, at any time and any number of times. It is not told what changed: a
/// reconciler that needs to know that would be wrong after a restart. Once the desired state is reached, it makes no
/// writes.
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
    /// The key that identifies a unit of work.
    type Key: WorkKey;

    /// Takes one step toward the desired state. The [`Outcome`] or [`ReconcileError`] decides when the key is
    /// reconciled next.
    fn reconcile(&self, key: &Self::Key) -> impl Future<Output = Result<Outcome, ReconcileError>> + Send;
}

/// The result of a successful reconcile.
///
/// ```
/// use std::time::Duration;
/// use setpoint::Outcome;
/// assert_eq!(Outcome::Settled.and(Outcome::CheckAfter(Duration::from_secs(9))), Outcome::CheckAfter(Duration::from_secs(9)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Done: there is nothing to do until something changes.
    Settled,
    /// Reconcile again after this delay, even if nothing changes.
    CheckAfter(Duration),
    /// Reconcile again soon, with the same backoff as a failure, but without being counted as one.
    Requeue,
}

impl Outcome {
    /// Combines two outcomes: returns the one that reconciles sooner.
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Requeue, _) | (_, Self::Requeue) => Self::Requeue,
            (Self::CheckAfter(one), Self::CheckAfter(another)) => Self::CheckAfter(one.min(another)),
            (Self::Settled, outcome) | (outcome, Self::Settled) => outcome,
        }
    }
}

/// A failed reconcile. The variant decides when it is retried.
///
/// ```
/// use setpoint::ReconcileError;
/// let error = ReconcileError::retry("create pod web-1");
/// assert_eq!(error.to_string(), "create pod web-1");
/// assert_eq!(error.class(), "retry");
/// ```
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// A transient error: retried with exponential backoff.
    #[error("{attempted}")]
    Retry {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// A write conflict: retried after a short delay, on fresh state.
    #[error("{attempted}")]
    Conflict {
        /// What was attempted.
        attempted: String,
        /// Why it failed.
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    },
    /// An error that a retry cannot fix: reported, and not retried until something changes.
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
    /// Returns a transient error.
    pub fn retry(attempted: impl Into<String>) -> Self {
        Self::Retry { attempted: attempted.into(), source: None }
    }

    /// Returns a write conflict.
    pub fn conflict(attempted: impl Into<String>) -> Self {
        Self::Conflict { attempted: attempted.into(), source: None }
    }

    /// Returns an error that a retry cannot fix.
    pub fn terminal(attempted: impl Into<String>) -> Self {
        Self::Terminal { attempted: attempted.into(), source: None }
    }

    /// Returns the error class as one word, for logs and metrics.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Retry { .. } => "retry",
            Self::Conflict { .. } => "conflict",
            Self::Terminal { .. } => "terminal",
        }
    }

    /// Returns the error category as one word: `network`, `unavailable`, `conflict`, `forbidden`, `invalid`,
    /// `not_found`, or the [class](Self::class) if the error did not come from the API server.
    pub fn category(&self) -> &'static str {
        self.of_client().map_or(self.class(), ClientError::category)
    }

    /// Returns the HTTP status code, if the API server responded with an error.
    pub fn code(&self) -> Option<u16> {
        self.of_client()?.code()
    }

    /// Returns the underlying client error, if there is one.
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

    /// Formats what was attempted and why it failed, on one line.
    ///
    /// ```
    /// use setpoint::{ClientError, reconcile::ErrorContext};
    /// let refused: Result<(), _> = Err(ClientError::Transport("connection refused".into()));
    /// let error = refused.attempting("create pod web-1").unwrap_err();
    /// assert_eq!(error.report(), "create pod web-1: no response from the API server: connection refused");
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

/// Adds what was attempted to an error: `client.create(..).await.attempting("create pod")?`.
///
/// ```
/// use setpoint::{ClientError, reconcile::ErrorContext};
/// let refused: Result<(), _> = Err(ClientError::from_reply(409, &Default::default(), b""));
/// assert_eq!(refused.attempting("update pod web-1").unwrap_err().class(), "conflict");
/// let pod = "web-2";
/// let refused: Result<(), _> = Err(ClientError::from_reply(403, &Default::default(), b""));
/// assert_eq!(refused.attempting(|| format!("update pod {pod}")).unwrap_err().to_string(), "update pod web-2");
/// ```
pub trait ErrorContext<T> {
    /// Converts the error into a [`ReconcileError`] of the matching class. `what` says what was attempted: a text, or a
    /// function that builds it, which is only called if there is an error.
    fn attempting(self, what: impl Attempted) -> Result<T, ReconcileError>;
}

impl<T> ErrorContext<T> for Result<T, ClientError> {
    fn attempting(self, what: impl Attempted) -> Result<T, ReconcileError> {
        self.map_err(|error| error.into_reconcile_error(what.text()))
    }
}

/// What was attempted: a text, or a function that builds it. See [`ErrorContext::attempting`].
///
/// ```
/// use setpoint::reconcile::Attempted;
/// assert_eq!((|| format!("create pod {}", 7)).text(), "create pod 7".text());
/// ```
pub trait Attempted {
    /// Returns the text.
    fn text(self) -> String;
}

impl Attempted for &str {
    fn text(self) -> String {
        self.to_owned()
    }
}

impl Attempted for String {
    fn text(self) -> String {
        self
    }
}

impl<F: FnOnce() -> T, T: Into<String>> Attempted for F {
    fn text(self) -> String {
        self().into()
    }
}

/// For errors whose own message says enough. [`ErrorContext::attempting`] adds what was attempted.
impl From<ClientError> for ReconcileError {
    fn from(error: ClientError) -> Self {
        error.into_reconcile_error("call the API server".into())
    }
}

impl From<()> for Outcome {
    /// Done, as [`Outcome::Settled`].
    fn from((): ()) -> Self {
        Self::Settled
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
    fn the_reaction_to_an_error_depends_on_its_kind() {
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
