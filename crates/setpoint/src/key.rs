//! The name of an object within its kind.

use std::fmt;
use std::sync::Arc;

/// `namespace/name`, or `name` for a cluster-scoped object. Cheap to clone; ordered by namespace, then
/// name, so that the objects of a namespace are neighbours.
///
/// ```
/// use setpoint::Key;
/// let pod = Key::namespaced("shop", "web-1");
/// assert_eq!(pod.to_string(), "shop/web-1");
/// assert_eq!(pod.sibling("web-2"), Key::namespaced("shop", "web-2"));
/// assert_eq!(Key::cluster("node-1").namespace(), None);
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    namespace: Option<Arc<str>>,
    name: Arc<str>,
}

impl Key {
    /// The key of an object in a namespace.
    pub fn namespaced(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: Some(namespace.into()), name: name.into() }
    }

    /// The key of a cluster-scoped object.
    pub fn cluster(name: impl Into<Arc<str>>) -> Self {
        Self { namespace: None, name: name.into() }
    }

    /// The namespace, `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }

    /// The name within the namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The key of another object in the same namespace.
    pub fn sibling(&self, name: impl Into<Arc<str>>) -> Self {
        Self { namespace: self.namespace.clone(), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{namespace}/{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
