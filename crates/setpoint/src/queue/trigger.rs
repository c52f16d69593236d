//! What set off a reconcile: for logs and traces, and for nothing else.
//!
//! A trigger is no part of a key. It does not tell two keys apart, a reconciler never sees it, and of
//! several that come together the first is kept.

use std::fmt;

use crate::{Key, Kind};

/// What set off a reconcile.
///
/// ```
/// use setpoint::{Key, Kind};
/// use setpoint::queue::{Cause, Trigger};
/// let pods = Kind::new("", "v1", "Pod", "pods", true);
/// let trigger = Trigger { cause: Cause::Updated, kind: Some(pods), object: Some(Key::namespaced("shop", "web-1")) };
/// assert_eq!(trigger.to_string(), "updated Pod shop/web-1");
/// assert_eq!(Trigger::from(Cause::Retry).to_string(), "retry");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trigger {
    /// What happened.
    pub cause: Cause,
    /// To an object of this kind.
    pub kind: Option<Kind>,
    /// To this object.
    pub object: Option<Key>,
}

/// What happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// Somebody added the key.
    #[default]
    Asked,
    /// An object was there when the cache was first filled.
    Listed,
    /// An object was created.
    Created,
    /// An object changed.
    Updated,
    /// An object is gone.
    Deleted,
    /// Nothing: it is time to look at everything again.
    Resync,
    /// The last try failed.
    Retry,
    /// A delay is over.
    Delay,
}

impl Trigger {
    /// Leaves nothing behind. Part by part: a processor stalls when it reads in one piece what it has just
    /// written in several.
    #[inline]
    pub(super) fn move_to(&mut self, other: &mut Self) {
        other.cause = std::mem::take(&mut self.cause);
        other.kind = self.kind.take();
        other.object = self.object.take();
    }
}

impl Cause {
    /// The cause in a word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::Listed => "listed",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Resync => "resync",
            Self::Retry => "retry",
            Self::Delay => "delay",
        }
    }
}

impl From<Cause> for Trigger {
    fn from(cause: Cause) -> Self {
        Self { cause, kind: None, object: None }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.cause.as_str())?;
        if let Some(kind) = &self.kind {
            write!(f, " {}", kind.kind())?;
        }
        match &self.object {
            Some(object) => write!(f, " {object}"),
            None => Ok(()),
        }
    }
}
