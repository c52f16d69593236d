//! What a request is about: its path and method, taken apart once, before anything is decided on it.
//!
//! A path is split at its literal slashes and each segment decoded by itself, so an encoded slash or dot
//! stays inside its segment and can never lead to another resource.

use std::borrow::Cow;

use http::Method;

use crate::kind::Verb;
use crate::names;
use crate::query::{self, Query};
use crate::status::Status;

/// A request, taken apart.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    /// The path's segments, without empty ones at either end.
    pub segments: Vec<Cow<'a, str>>,
    /// Set if the path is that of objects.
    pub resource: Option<ResourceTarget>,
}

/// A request for objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResourceTarget {
    /// What is to be done; `None` for a method that no resource has.
    pub verb: Option<Verb>,
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// The path goes on after the subresource.
    pub has_more: bool,
    /// The field selector of a collection, as the client wrote it.
    pub field_selector: String,
    /// The label selector of a collection, as the client wrote it.
    pub label_selector: String,
}

impl ResourceTarget {
    /// The name of the one object that this can be about: in the path, or selected by it.
    pub fn named(&self) -> Option<&str> {
        let selected = || self.selects("metadata.name").filter(|name| names::path_segment(name).is_empty());
        self.name.as_deref().or_else(selected)
    }

    /// The value that a field must have to be selected.
    pub fn selects(&self, field: &str) -> Option<&str> {
        let mut requirements = self.field_selector.split(',').filter_map(|one| one.split_once('='));
        let (_, value) = requirements.find(|(name, _)| name.trim() == field)?;
        Some(value.trim_start_matches('=').trim()).filter(|value| !value.is_empty())
    }
}

/// Segments that follow a namespace's name and are subresources of it, not resources in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

impl<'a> Target<'a> {
    pub(crate) fn parse(method: &Method, path: &'a str, query: &Query<'_>) -> Result<Self, Status> {
        let segments = segments(path)?;
        let resource = resource_target(method, &segments, query);
        Ok(Self { segments, resource })
    }

    pub(crate) fn segment(&self, at: usize) -> Option<&str> {
        self.segments.get(at).map(AsRef::as_ref)
    }
}

fn segments(path: &str) -> Result<Vec<Cow<'_, str>>, Status> {
    let trimmed = path.trim_matches('/');
    if trimmed.is_empty() {
        return Ok(Vec::new());
    }
    let decoded = trimmed
        .split('/')
        .map(|segment| query::decode(segment, false).filter(|segment| !segment.contains('\0')));
    decoded
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Status::bad_request("the path of the request is not properly encoded"))
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
    let is_named = name.is_some();
    let selector = |name: &str| query.get(name).unwrap_or("").to_owned();
    let verb = match watch_by_path {
        true => Some(Verb::Watch).filter(|_| method == Method::GET),
        false => verb(method, name.is_some(), query),
    };
    Some(ResourceTarget {
        verb,
        group: group.into(),
        version: version.to_string(),
        namespace: namespace.filter(|namespace| !namespace.is_empty()).map(Into::into),
        resource: resource.to_string(),
        name,
        subresource: parts.get(1).map(|subresource| subresource.to_string()),
        has_more: parts.len() > 2,
        field_selector: if is_named { String::new() } else { selector("fieldSelector") },
        label_selector: if is_named || watch_by_path { String::new() } else { selector("labelSelector") },
    })
}

/// Splits `namespaces/NAMESPACE/…`; a namespace by itself, or a subresource of it, is an object.
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
    /// The verb as authorization and discovery name it.
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

    /// `verb group/version namespace resource name subresource` of a path.
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
    fn an_encoded_slash_stays_inside_its_segment() {
        check(Method::GET, "/api/v1/namespaces/a/pods/b%2f..%2fsecrets", "get /v1 a pods b/../secrets -");
        check(Method::GET, "/api/v1/namespaces/a%2fpods", "get /v1 a/pods namespaces a/pods -");
        check(Method::GET, "/api/v1/namespaces/a/pods/../secrets", "get /v1 a pods .. secrets");
    }

    #[test]
    fn a_nul_or_a_broken_escape_is_refused() {
        for path in ["/api/v1/pods/%00", "/api/v1/%zz", "/api/v1/pods/%"] {
            assert_eq!(Target::parse(&Method::GET, path, &Query::default()).unwrap_err().code, 400);
        }
    }
}
