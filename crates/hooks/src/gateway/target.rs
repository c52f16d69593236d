//! What the path of a request names.                                                                          (pure)

/// A resource, or an object of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target<'a> {
    pub(super) group: &'a str,
    pub(super) version: &'a str,
    pub(super) namespace: Option<&'a str>,
    pub(super) plural: &'a str,
    pub(super) name: Option<&'a str>,
    pub(super) subresource: Option<&'a str>,
}

/// The paths beside those of resources that clients read: discovery, schemas, version, health.
const READABLE: [&str; 7] = ["api", "apis", "version", "openapi", "healthz", "livez", "readyz"];

/// Whether a path belongs to the Kubernetes API.
pub(super) fn is_served(path: &str) -> bool {
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    // A server behind the API server's address may decode a path before it looks at it.
    let is_plain = |segment: &str| {
        let decoded = segment.to_ascii_lowercase().replace("%2e", ".");
        !matches!(decoded.as_str(), "." | "..") && !decoded.contains("%2f") && !decoded.contains('\\')
    };
    path.split('/').all(is_plain) && READABLE.contains(&first)
}

impl<'a> Target<'a> {
    /// Parses a path. `None` if it names no resource.
    pub(super) fn parse(path: &'a str) -> Option<Self> {
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let group = match segments.next()? {
            "api" => "",
            "apis" => segments.next()?,
            _ => return None,
        };
        let version = segments.next()?;
        let rest: Vec<&str> = segments.collect();
        let (namespace, rest) = match rest.as_slice() {
            // A namespace itself, not something in it.
            ["namespaces"] | ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => {
                (None, &rest[..])
            }
            ["namespaces", namespace, ..] => (Some(*namespace), &rest[2..]),
            _ => (None, &rest[..]),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource, ..] => (*plural, Some(*name), Some(*subresource)),
            [] => return None,
        };
        Some(Self { group, version, namespace, plural, name, subresource })
    }

    /// Whether it names a stored kind. Reviews are answered, and never stored.
    pub(super) fn is_stored(&self) -> bool {
        self.subresource.is_none() && !matches!(self.group, "authentication.k8s.io" | "authorization.k8s.io")
    }

    pub(super) fn is_secret(&self) -> bool {
        self.group.is_empty() && self.plural == "secrets"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_resource_an_object_or_a_subresource() {
        let check = |path: &str, expected: [&str; 6]| {
            let found = Target::parse(path).expect(path);
            let shown = [
                found.group,
                found.version,
                found.namespace.unwrap_or("-"),
                found.plural,
                found.name.unwrap_or("-"),
                found.subresource.unwrap_or("-"),
            ];
            assert_eq!(shown, expected, "{path}");
        };
        check("/api/v1/pods", ["", "v1", "-", "pods", "-", "-"]);
        check("/api/v1/namespaces/shop/pods/a/log", ["", "v1", "shop", "pods", "a", "log"]);
        check("/apis/apps/v1/namespaces/shop/deployments", ["apps", "v1", "shop", "deployments", "-", "-"]);
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/a",
            ["rbac.authorization.k8s.io", "v1", "-", "clusterroles", "a", "-"],
        );
        check("/api/v1/namespaces/shop", ["", "v1", "-", "namespaces", "shop", "-"]);
        check("/api/v1/namespaces/shop/finalize", ["", "v1", "-", "namespaces", "shop", "finalize"]);
        assert_eq!(Target::parse("/version"), None);
        assert_eq!(Target::parse("/apis/apps/v1"), None);
    }

    #[test]
    fn only_paths_of_the_api_are_served() {
        let check = |path: &str, expected: bool| assert_eq!(is_served(path), expected, "{path}");
        check("/api/v1/pods", true);
        check("/openapi/v3", true);
        check("/version", true);
        check("/metrics", false);
        check("/debug/pprof", false);
        check("/api/../metrics", false);
        check("/api/%2E%2e/metrics", false);
        check("/api/.%2e/metrics", false);
        check("/api/v1/namespaces/a%2Fb/pods", false);
        check("/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode", true);
        check("/", false);
    }
}
