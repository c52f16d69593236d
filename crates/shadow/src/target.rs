//! The target of a request, parsed from its path.

use std::fmt;

use percent_encoding::percent_decode_str;
use setpoint::{Key, Kind};

/// A resource: `deployments.apps`, `pods`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    /// The plural name.
    pub name: String,
}

/// The object, subresource or collection that a path addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) resource: Resource,
    pub(crate) version: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
}

/// An object, in any version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) resource: Resource,
    pub(crate) namespace: Option<String>,
    pub(crate) name: String,
}

impl Resource {
    /// A resource of a group, which is empty for the core group.
    pub fn new(group: &str, name: &str) -> Self {
        Self { group: group.to_owned(), name: name.to_owned() }
    }

    pub(crate) fn of(kind: &Kind) -> Self {
        Self::new(kind.group(), kind.plural())
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.name),
            group => write!(f, "{}.{group}", self.name),
        }
    }
}

impl Target {
    /// Returns an object of a kind.
    pub(crate) fn of(kind: &Kind, key: &Key) -> Self {
        Self {
            resource: Resource::of(kind),
            version: kind.version().to_owned(),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
            subresource: None,
        }
    }

    /// Returns the collection of a resource, in any version. It cannot be read.
    pub(crate) fn collection(resource: &Resource, namespace: Option<&str>) -> Self {
        Self {
            resource: resource.clone(),
            version: String::new(),
            namespace: namespace.map(str::to_owned),
            name: None,
            subresource: None,
        }
    }

    /// Returns `None` for a path that is not a resource's.
    pub(crate) fn parse(path: &str) -> Option<Self> {
        let segments: Vec<String> = path
            .split('/')
            .filter(|segment| !segment.is_empty())
            .map(|segment| percent_decode_str(segment).decode_utf8().map(|text| text.into_owned()).ok())
            .collect::<Option<_>>()?;
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let (namespace, rest) = match rest {
            // Namespaces are objects too: these two are subresources of one.
            ["namespaces", _, "status" | "finalize"] if group.is_empty() => (None, rest),
            ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (Some(*namespace), rest),
            rest => (None, rest),
        };
        let (resource, name, subresource) = match rest {
            [resource] => (*resource, None, None),
            [resource, name] => (*resource, Some(*name), None),
            [resource, name, subresource] => (*resource, Some(*name), Some(*subresource)),
            _ => return None,
        };
        Some(Self {
            resource: Resource::new(group, resource),
            version: version.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
        })
    }

    /// Returns the object that it names. `None` for a collection.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        let (resource, namespace) = (self.resource.clone(), self.namespace.clone());
        Some(ObjectId { resource, namespace, name: self.name.clone()? })
    }

    /// Returns the object of this name in the collection.
    pub(crate) fn named(&self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self.clone() }
    }

    /// Returns the path to read the object from. Subresources are read with the object, except for a scale, which is
    /// its own object.
    pub(crate) fn read_path(&self) -> String {
        let mut path = if self.resource.group.is_empty() { "/api".to_owned() } else { "/apis".to_owned() };
        let namespace = self.namespace.as_deref();
        let scale = self.subresource.as_deref().filter(|part| *part == "scale");
        let segments = [
            Some(self.resource.group.as_str()).filter(|group| !group.is_empty()),
            Some(self.version.as_str()),
            namespace.map(|_| "namespaces"),
            namespace,
            Some(self.resource.name.as_str()),
            self.name.as_deref(),
            scale,
        ];
        for segment in segments.into_iter().flatten() {
            path.push('/');
            path.extend(percent_encoding::utf8_percent_encode(segment, ESCAPED));
        }
        path
    }

    /// Returns the namespace as an object.
    pub(crate) fn own_namespace(&self) -> Option<Self> {
        let name = self.namespace.clone()?;
        Some(Self {
            resource: Resource::new("", "namespaces"),
            version: "v1".into(),
            namespace: None,
            name: Some(name),
            subresource: None,
        })
    }

    pub(crate) fn is_event(&self) -> bool {
        self.resource.name == "events" && matches!(self.resource.group.as_str(), "" | "events.k8s.io")
    }
}

/// The characters to escape in a path segment.
const ESCAPED: &percent_encoding::AsciiSet =
    &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b':').remove(b'~');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_parsed_into_a_target() {
        let check = |path: &str, expected: &str, read: &str| {
            let target = Target::parse(path).unwrap_or_else(|| panic!("{path} is not understood"));
            let parts = [&target.namespace, &target.name, &target.subresource];
            let parts = parts.map(|part| part.as_deref().unwrap_or("-"));
            assert_eq!(format!("{} {}", target.resource, parts.join(" ")), expected, "{path}");
            assert_eq!(target.read_path(), read, "{path}");
        };
        check("/api/v1/namespaces/shop/pods", "pods shop - -", "/api/v1/namespaces/shop/pods");
        check("/api/v1/namespaces/shop/pods/a", "pods shop a -", "/api/v1/namespaces/shop/pods/a");
        check(
            "/api/v1/namespaces/shop/pods/a/status",
            "pods shop a status",
            "/api/v1/namespaces/shop/pods/a",
        );
        check("/api/v1/namespaces/shop", "namespaces - shop -", "/api/v1/namespaces/shop");
        check("/api/v1/namespaces/shop/finalize", "namespaces - shop finalize", "/api/v1/namespaces/shop");
        check(
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
            "deployments.apps shop web scale",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
        );
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%20b",
            "clusterroles.rbac.authorization.k8s.io - a b -",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a%20b",
        );
    }

    #[test]
    fn a_path_of_something_else_is_rejected() {
        for path in ["/", "/version", "/api/v1", "/apis/apps/v1", "/api/v1/pods/a/b/c/d", "/api/v1/pods/%ff"]
        {
            assert_eq!(Target::parse(path), None, "{path}");
        }
    }
}
