//! The trigger of a reconcile, only for logs and traces.
//!
//! A trigger is not part of a key: it does not distinguish keys, and a reconciler never sees it. If several arrive for
//! a waiting key, the first is kept.

use std::fmt;

use crate::{Key, Kind};

/// What caused a reconcile.
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
    /// The cause.
    pub cause: Cause,
    /// The kind of the object that caused it.
    pub kind: Option<Kind>,
    /// The object that caused it.
    pub object: Option<Key>,
}

/// The cause of a reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cause {
    /// The key was added explicitly.
    #[default]
    Asked,
    /// An object was in the initial list.
    ObjectList,
    /// An object was created.
    Created,
    /// An object changed.
    Updated,
    /// An object was deleted.
    Deleted,
    /// A periodic resync: nothing changed.
    Resync,
    /// The last attempt failed.
    Retry,
    /// A delay ended.
    Delay,
}

impl Trigger {
    /// Moves the trigger into `other`, field by field. Reading in one piece what was just written in several stalls the
    /// processor.
    #[inline]
    pub(super) fn move_to(&mut self, other: &mut Self) {
        other.cause = std::mem::take(&mut self.cause);
        other.kind = self.kind.take();
        other.object = self.object.take();
    }
}

impl Cause {
    /// Returns the cause as one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "asked",
            Self::ObjectList => "listed",
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
