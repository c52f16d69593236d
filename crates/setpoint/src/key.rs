//! Object keys: namespace and name.

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// `namespace/name`, or `name` for a cluster-scoped object. Cheap to clone. Ordered by namespace, then name, so the
/// objects of a namespace are adjacent.
///
/// ```
/// use setpoint::Key;
/// let pod = Key::namespaced("shop", "web-1");
/// assert_eq!(pod.to_string(), "shop/web-1");
/// assert_eq!(pod.sibling("web-2"), Key::namespaced("shop", "web-2"));
/// assert_eq!(Key::cluster("node-1").namespace(), None);
/// ```
#[derive(Clone)]
pub struct Key {
    /// Namespace, [`SEPARATOR`], name. The namespace is empty for a cluster-scoped object. A key is one allocation and
    /// at most two registers, because work queues constantly clone, move, compare and drop keys.
    text: Arc<str>,
}

/// Sorts before every character of a name, so comparing the text compares the namespace, then the name.
const SEPARATOR: char = '\0';

impl Key {
    /// Creates the key of a namespaced object.
    pub fn namespaced(namespace: impl AsRef<str>, name: impl AsRef<str>) -> Self {
        Self::joined(namespace.as_ref(), name.as_ref())
    }

    /// Creates the key of a cluster-scoped object.
    pub fn cluster(name: impl AsRef<str>) -> Self {
        Self::joined("", name.as_ref())
    }

    /// Creates the key of an object in a namespace, or of a cluster-scoped object (`None`).
    pub fn in_namespace(namespace: Option<&str>, name: impl AsRef<str>) -> Self {
        Self::joined(namespace.unwrap_or_default(), name.as_ref())
    }

    /// Returns the metadata of a new object with this namespace and name.
    ///
    /// ```
    /// let metadata = setpoint::Key::namespaced("shop", "settings").metadata();
    /// assert_eq!((metadata.namespace.unwrap(), metadata.name.unwrap()), ("shop".into(), "settings".into()));
    /// ```
    pub fn metadata(&self) -> ObjectMeta {
        ObjectMeta {
            name: Some(self.name().to_owned()),
            namespace: self.namespace().map(str::to_owned),
            ..ObjectMeta::default()
        }
    }

    /// Returns the namespace, or `None` for a cluster-scoped object.
    pub fn namespace(&self) -> Option<&str> {
        Some(self.parts().0).filter(|namespace| !namespace.is_empty())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        self.parts().1
    }

    /// Returns the key of another object in the same namespace.
    pub fn sibling(&self, name: impl AsRef<str>) -> Self {
        Self::joined(self.namespace().unwrap_or_default(), name.as_ref())
    }

    fn joined(namespace: &str, name: &str) -> Self {
        let mut text = String::with_capacity(namespace.len() + SEPARATOR.len_utf8() + name.len());
        text.push_str(namespace);
        text.push(SEPARATOR);
        text.push_str(name);
        Self { text: text.into() }
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once(SEPARATOR).unwrap_or(("", &self.text))
    }
}

impl PartialEq for Key {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) || self.text == other.text
    }
}

impl Eq for Key {}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        self.text.cmp(&other.text)
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.text.as_bytes());
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace() {
            Some(namespace) => write!(f, "{namespace}/{}", self.name()),
            None => f.write_str(self.name()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_sort_by_namespace_then_name_with_cluster_scope_first() {
        let ordered = [
            Key::cluster("z"),
            Key::namespaced("a", ""),
            Key::namespaced("a", "a"),
            Key::namespaced("a", "b"),
            Key::namespaced("a-b", "a"),
            Key::namespaced("aa", "a"),
            Key::namespaced("b", "a"),
        ];
        assert!(ordered.is_sorted(), "{ordered:?}");
        for (i, one) in ordered.iter().enumerate() {
            for (j, another) in ordered.iter().enumerate() {
                assert_eq!(one == another, i == j, "{one} and {another}");
            }
        }
    }

    #[test]
    fn a_key_returns_its_namespace_and_name() {
        let key = Key::namespaced("shop", "web-1");
        assert_eq!((key.namespace(), key.name()), (Some("shop"), "web-1"));
        assert_eq!(Key::cluster("node-1").sibling("node-2"), Key::cluster("node-2"));
    }
}
