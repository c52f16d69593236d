//! Parses a request's path and method once, before any decision about it.
//!
//! As in v1.34, a path is decoded once and then split at its slashes: an encoded slash is a slash to the authorizer
//! and to the handlers alike. Dots have no meaning: `..` is a name like any other, and no object has it.

use std::borrow::Cow;

use http::Method;

use crate::kind::Verb;
use crate::names;
use crate::query::{self, Query};
use crate::selector;
use crate::status::Status;

/// A parsed request.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The decoded path.
    pub path: Cow<'a, str>,
    /// The path's segments, without empty ones at either end.
    pub segments: Vec<Cow<'a, str>>,
    /// Set for a resource path.
    pub resource: Option<ResourceTarget>,
}

/// A resource request.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResourceTarget {
    /// The verb; `None` for a method that no resource supports.
    pub verb: Option<Verb>,
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// Whether the path continues after the subresource.
    pub has_more: bool,
    /// The path after the subresource, with its leading slash.
    pub subpath: String,
    /// The field selector of a collection, as sent by the client.
    pub field_selector: String,
    /// Whether the path has an empty namespace.
    pub has_empty_namespace: bool,
    /// Whether nothing is served at the path: it looks like a resource path, but starts with more than one slash.
    pub is_off_route: bool,
    /// The name that the field selector of a list or watch requires, if all its options are valid.
    pub selected_name: Option<String>,
    /// The label selector of a collection, as sent by the client.
    pub label_selector: String,
}

impl ResourceTarget {
    /// Returns the name of the single object that this can refer to: from the path or, for lists and watches, the
    /// selector.
    pub fn named(&self) -> Option<&str> {
        self.name.as_deref().or(self.selected_name.as_deref())
    }

    /// Whether the selector requires a single value for a field.
    pub(crate) fn pins(&self, field: &str) -> bool {
        let required = selector::requirements(&self.field_selector).unwrap_or_default();
        required.iter().any(|one| one.field == field && one.equal)
    }

    /// Whether the selector requires this value for a field. Never true for an invalid selector.
    pub fn selects(&self, field: &str, value: &str) -> bool {
        let required = selector::requirements(&self.field_selector).unwrap_or_default();
        required.iter().any(|one| one.field == field && one.equal && one.value == value)
    }
}

/// Returns the name that the field selector of a list or watch requires. As in v1.34, it is ignored if any option of
/// the list is invalid, or if the name could not be part of a path.
fn selected_name(query: &Query<'_>) -> Option<String> {
    let numbers = ["timeoutSeconds", "limit"];
    if numbers.iter().any(|name| query.number(name).is_err()) {
        return None;
    }
    selector::LabelSelector::parse(query.get("labelSelector").unwrap_or("")).ok()?;
    let required = selector::requirements(query.get("fieldSelector")?).ok()?;
    let name = required.into_iter().find(|one| one.field == "metadata.name" && one.equal)?;
    Some(name.value).filter(|name| !name.is_empty() && names::path_segment(name).is_empty())
}

/// Segments that, after a namespace's name, are its subresources and not resources in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl<'a> Target<'a> {
    pub(crate) fn parse(method: &Method, path: &'a str, query: &Query<'_>) -> Result<Self, Status> {
        // Go's response to a request with an undecodable path.
        let malformed = || Status::page(400, "400 Bad Request");
        let path = query::decode(path, false).ok_or_else(malformed)?;
        let segments = segments(&path);
        if let [.., last] = segments.as_slice()
            && matches!(last.as_ref(), "watch" | "proxy")
            && is_bare_version(&segments[..segments.len() - 1])
        {
            let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
            return Err(Status::page(500, format!("Internal Server Error: {path:?}: {why}, {path}\n")));
        }
        let mut resource = resource_target(method, &segments, query);
        if let Some(resource) = resource.as_mut() {
            resource.is_off_route = path.starts_with("//");
            if resource.subresource.is_some() && path.ends_with('/') {
                resource.subpath.push('/');
            }
        }
        Ok(Self { path, segments, resource })
    }

    /// Returns the request's verb, as in v1.34: that of its resource, or its method in lower case.
    pub(crate) fn verb(&self, method: &Method) -> Cow<'static, str> {
        let Some(resource) = &self.resource else { return method.as_str().to_ascii_lowercase().into() };
        let verb = match (resource.verb, method) {
            (Some(verb), _) => verb.name(),
            (None, &Method::HEAD) if resource.name.is_some() => Verb::Get.name(),
            (None, &Method::HEAD) => Verb::List.name(),
            (None, _) => "",
        };
        verb.into()
    }

    pub(crate) fn segment(&self, at: usize) -> Option<&str> {
        self.segments.get(at).map(AsRef::as_ref)
    }
}

fn segments<'a>(path: &Cow<'a, str>) -> Vec<Cow<'a, str>> {
    match path {
        Cow::Borrowed(path) => split(path).map(Cow::Borrowed).collect(),
        Cow::Owned(path) => split(path).map(|segment| Cow::Owned(segment.to_owned())).collect(),
    }
}

fn split(path: &str) -> impl Iterator<Item = &str> {
    let trimmed = path.trim_matches('/');
    trimmed.split('/').filter(|_| !trimmed.is_empty())
}

/// Whether these segments are an API version and nothing more.
fn is_bare_version(segments: &[Cow<'_, str>]) -> bool {
    match segments {
        [api, _] => api == "api",
        [apis, _, _] => apis == "apis",
        _ => false,
    }
}

fn resource_target(method: &Method, segments: &[Cow<'_, str>], query: &Query<'_>) -> Option<ResourceTarget> {
    let (group, rest) = match segments {
        [api, rest @ ..] if api == "api" => ("", rest),
        [apis, group, rest @ ..] if apis == "apis" => (group.as_ref(), rest),
        _ => return None,
    };
    let [version, rest @ ..] = rest else { return None };
    let (watch_by_path, rest) = match rest {
        [first, rest @ ..] if first == "watch" && !rest.is_empty() => (true, rest),
        _ => (false, rest),
    };
    let (namespace, parts) = in_namespace(rest)?;
    let [resource, parts @ ..] = parts else { return None };
    let name = parts.first().map(|name| name.to_string());
    let verb = match watch_by_path {
        true => Some(Verb::Watch).filter(|_| method == Method::GET),
        false => verb(method, name.is_some(), query),
    };
    // Selectors only narrow requests for collections. As in v1.34, a watch by path is authorized as a whole.
    let selects = matches!(verb, Some(Verb::List | Verb::Watch | Verb::DeleteCollection)) && !watch_by_path;
    let selector = |name: &str| query.get(name).filter(|_| selects).unwrap_or("").to_owned();
    Some(ResourceTarget {
        verb,
        group: group.into(),
        version: version.to_string(),
        namespace: namespace.filter(|namespace| !namespace.is_empty()).map(Into::into),
        resource: resource.to_string(),
        name,
        subresource: parts.get(1).map(|subresource| subresource.to_string()),
        has_more: parts.len() > 2,
        subpath: parts.iter().skip(2).flat_map(|part| ["/", part]).collect(),
        has_empty_namespace: namespace == Some(""),
        is_off_route: false,
        // A watch by path may be of a single object, so the authorizer ignores its selectors.
        field_selector: selector("fieldSelector"),
        label_selector: selector("labelSelector"),
        selected_name: match verb {
            Some(Verb::List | Verb::Watch) if !watch_by_path => selected_name(query),
            _ => None,
        },
    })
}

/// Splits `namespaces/NAMESPACE/…`; a namespace alone, or a subresource of it, is an object.
fn in_namespace<'b>(parts: &'b [Cow<'_, str>]) -> Option<(Option<&'b str>, &'b [Cow<'b, str>])> {
    match parts {
        [] => None,
        [namespaces, namespace, third, ..]
            if namespaces == "namespaces" && !NAMESPACE_SUBRESOURCES.contains(&third.as_ref()) =>
        {
            Some((Some(namespace), &parts[2..]))
        }
        [namespaces, namespace, ..] if namespaces == "namespaces" => Some((Some(namespace), parts)),
        _ => Some((None, parts)),
    }
}

fn verb(method: &Method, named: bool, query: &Query<'_>) -> Option<Verb> {
    Some(match *method {
        Method::POST => Verb::Create,
        Method::GET if named => Verb::Get,
        Method::GET if query.flag("watch") == Some(true) => Verb::Watch,
        Method::GET => Verb::List,
        Method::PUT => Verb::Update,
        Method::PATCH => Verb::Patch,
        Method::DELETE if named => Verb::Delete,
        Method::DELETE => Verb::DeleteCollection,
        _ => return None,
    })
}

impl Verb {
    /// Returns the verb's name in authorization and discovery.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
            Self::Get => "get",
            Self::List => "list",
            Self::Patch => "patch",
            Self::Update => "update",
            Self::Watch => "watch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the `verb group/version namespace resource name subresource` of a path.
    fn check(method: Method, path: &str, expected: &str) {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let query = Query::parse(query);
        let target = Target::parse(&method, path, &query).unwrap();
        let found = target.resource.map_or("none".to_string(), |r| {
            let dash = |text: Option<String>| text.unwrap_or("-".into());
            format!(
                "{} {}/{} {} {} {} {}{}",
                r.verb.map_or("-", Verb::name),
                r.group,
                r.version,
                dash(r.namespace),
                r.resource,
                dash(r.name),
                dash(r.subresource),
                if r.has_more { " …" } else { "" }
            )
        });
        assert_eq!(found, expected, "{path}");
    }

    #[test]
    fn paths_are_taken_apart_as_v1_34_does() {
        let get = Method::GET;
        check(get.clone(), "/api/v1/pods", "list /v1 - pods - -");
        check(get.clone(), "/api/v1/pods?watch=1", "watch /v1 - pods - -");
        check(get.clone(), "/api/v1/pods?watch=false", "list /v1 - pods - -");
        check(get.clone(), "/api/v1/namespaces/a/pods/b", "get /v1 a pods b -");
        check(get.clone(), "/api/v1/namespaces/a", "get /v1 a namespaces a -");
        check(get.clone(), "/api/v1/namespaces/a/status", "get /v1 a namespaces a status");
        check(get.clone(), "/api/v1/namespaces/a/pods/b/status/c", "get /v1 a pods b status …");
        check(get.clone(), "/apis/apps/v1/namespaces/a/deployments/", "list apps/v1 a deployments - -");
        check(get.clone(), "/apis/apps/v1", "none");
        check(get.clone(), "/api//v1/namespaces", "get / - v1 namespaces -");
        check(get.clone(), "/api/v1/watch/namespaces/a/pods", "watch /v1 a pods - -");
        check(get, "/healthz", "none");
        check(Method::DELETE, "/api/v1/namespaces/a/pods", "deletecollection /v1 a pods - -");
        check(Method::HEAD, "/api/v1/namespaces/a/pods/b", "- /v1 a pods b -");
    }

    #[test]
    fn the_authorizer_gets_the_effective_selector() {
        let target = |query: &str| {
            let query = Query::parse(query);
            Target::parse(&Method::GET, "/api/v1/pods", &query).unwrap().resource.unwrap()
        };
        let on_node = |query: &str| target(query).selects("spec.nodeName", "n");
        assert!(on_node("fieldSelector=spec.nodeName=n") && on_node("fieldSelector=a!=b,spec.nodeName==n"));
        assert!(!on_node("fieldSelector=spec.nodeName!=n"));
        // Escaped, all of this is one value, which selects nearly everything.
        assert!(!on_node("fieldSelector=metadata.name!=x\\,spec.nodeName=n"));
        assert!(!on_node("fieldSelector=metadata.name!=x%5C,spec.nodeName%3Dn"));
        assert!(!on_node("fieldSelector=spec.nodeName=n,metadata.name"));

        let named = |query: &str| target(query).named().map(str::to_owned);
        assert_eq!(named("fieldSelector=metadata.name=a").as_deref(), Some("a"));
        assert_eq!(named("fieldSelector=metadata.namespace!=x\\,metadata.name=a"), None);
        assert_eq!(named("fieldSelector=metadata.name=a&limit=x"), None);
        assert_eq!(named("fieldSelector=metadata.name=a&labelSelector=%21%21"), None);
        assert_eq!(named("fieldSelector=metadata.name=%2e%2e"), None);
        let query = Query::parse("fieldSelector=metadata.name=a");
        let by_path = Target::parse(&Method::GET, "/api/v1/watch/pods", &query).unwrap().resource.unwrap();
        assert_eq!((by_path.named(), by_path.field_selector.as_str()), (None, ""));
    }

    #[test]
    fn an_encoded_slash_is_a_slash_and_dots_lead_nowhere() {
        check(Method::GET, "/api/v1/namespaces/a/pods/b%2f..%2fsecrets", "get /v1 a pods b .. …");
        check(Method::GET, "/api/v1/namespaces/a%2fpods", "list /v1 a pods - -");
        check(Method::GET, "/api/v1/namespaces/a/pods/../secrets", "get /v1 a pods .. secrets");
        check(Method::GET, "/%61pi%2Fv1%2fpods", "list /v1 - pods - -");
        check(Method::GET, "/api/v1/namespaces/a/pods/b%252fc", "get /v1 a pods b%2fc -");
    }

    #[test]
    fn a_broken_escape_is_refused() {
        for path in ["/api/v1/%zz", "/api/v1/pods/%", "/api/v1/pods/%4"] {
            assert_eq!(Target::parse(&Method::GET, path, &Query::default()).unwrap_err().code, 400);
        }
        for path in ["/api/v1/watch", "/apis/apps/v1/watch/"] {
            assert_eq!(Target::parse(&Method::GET, path, &Query::default()).unwrap_err().code, 500);
        }
    }
}
