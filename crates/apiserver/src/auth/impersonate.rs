//! Impersonation: parses the headers and authorizes their use.

use std::collections::BTreeMap;

use http::{HeaderMap, HeaderValue};

use super::authorize::{Attributes, Authorizer};
use super::{
    AUTHENTICATED, UNAUTHENTICATED, User, service_account_groups, service_account_name, split_service_account,
};
use crate::query;
use crate::request::ResourceTarget;
use crate::status::Status;

const PREFIX: &str = "impersonate-";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";
const AUTHENTICATION: &str = "authentication.k8s.io";

/// Why a request cannot be impersonated.
pub(crate) enum Refusal {
    /// Groups, a uid or extras without a user. The text is v1.34's.
    NoUser(String),
    Status(Box<Status>),
}

/// A single attribute of the impersonated user.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    ServiceAccount { namespace: String, name: String },
    User(String),
    Group(String),
    Extra { key: String, value: String },
    Uid(String),
}

/// Returns the impersonated user, if the request asks for one.
pub(crate) async fn user(
    authorizer: &dyn Authorizer,
    sender: &User,
    headers: &HeaderMap,
) -> Result<Option<User>, Refusal> {
    if !headers.keys().any(|name| name.as_str().starts_with(PREFIX)) {
        return Ok(None);
    }
    let parts = parts(headers)?;
    for part in &parts {
        let target = part.target();
        let attributes = Attributes { user: sender, verb: "impersonate", path: "", resource: Some(&target) };
        let decision = authorizer.authorize(&attributes).await;
        if !decision.is_allowed() || decision.error.is_some() {
            return Err(Refusal::Status(Box::new(attributes.forbidden(decision.reason()))));
        }
    }
    Ok((!parts.is_empty()).then(|| assemble(parts)))
}

fn parts(headers: &HeaderMap) -> Result<Vec<Part>, Refusal> {
    let first = |name: &str| Ok::<_, Refusal>(values(headers, name)?.into_iter().next());
    let user = first(USER)?.filter(|name| !name.is_empty());
    let mut parts: Vec<Part> = user.map(Part::of_user).into_iter().collect();
    let has_user = !parts.is_empty();
    parts.extend(values(headers, GROUP)?.into_iter().map(Part::Group));
    for name in headers.keys().filter_map(|name| name.as_str().strip_prefix(EXTRA)) {
        let key = query::decode(name, false).map_or(name.to_owned(), Into::into);
        let all = values(headers, &format!("{EXTRA}{name}"))?;
        parts.extend(all.into_iter().map(|value| Part::Extra { key: key.clone(), value }));
    }
    parts.extend(first(UID)?.filter(|uid| !uid.is_empty()).map(Part::Uid));
    if !has_user && !parts.is_empty() {
        let shown: Vec<String> = parts.iter().map(Part::shown).collect();
        let why = format!("requested [{}] without impersonating a user", shown.join(" "));
        return Err(Refusal::NoUser(why));
    }
    Ok(parts)
}

/// Returns a header's values. One that cannot be decoded rejects the request: without it the request would run as its
/// sender, who usually has more rights.
fn values(headers: &HeaderMap, name: &str) -> Result<Vec<String>, Refusal> {
    let decode = |value: &HeaderValue| std::str::from_utf8(value.as_bytes()).map(str::to_owned);
    let values: Result<_, _> = headers.get_all(name).iter().map(decode).collect();
    values.map_err(|_| {
        let why = format!("the value of the header {name} is not UTF-8");
        Refusal::Status(Box::new(Status::bad_request(why)))
    })
}

impl Part {
    fn of_user(name: String) -> Self {
        match split_service_account(&name) {
            Some((namespace, name)) => {
                Self::ServiceAccount { namespace: namespace.into(), name: name.into() }
            }
            None => Self::User(name),
        }
    }

    /// Returns the resource on which the sender needs the `impersonate` verb.
    fn target(&self) -> ResourceTarget {
        let of = |group: &str, resource: &str, name: &str| ResourceTarget {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
            name: Some(name.into()),
            ..ResourceTarget::default()
        };
        match self {
            Self::ServiceAccount { namespace, name } => {
                ResourceTarget { namespace: Some(namespace.clone()), ..of("", "serviceaccounts", name) }
            }
            Self::User(name) => of("", "users", name),
            Self::Group(name) => of("", "groups", name),
            Self::Extra { key, value } => {
                ResourceTarget { subresource: Some(key.clone()), ..of(AUTHENTICATION, "userextras", value) }
            }
            Self::Uid(uid) => of(AUTHENTICATION, "uids", uid),
        }
    }

    /// Formats it as v1.34 does if the user is missing: kind, namespace, name, uid, version, version, path.
    fn shown(&self) -> String {
        match self {
            Self::ServiceAccount { namespace, name } => format!("{{ServiceAccount {namespace} {name}    }}"),
            Self::User(name) => format!("{{User  {name}    }}"),
            Self::Group(name) => format!("{{Group  {name}    }}"),
            Self::Extra { key, value } => format!("{{UserExtra  {value}  {AUTHENTICATION}/v1  {key}}}"),
            Self::Uid(uid) => format!("{{UID  {uid}  {AUTHENTICATION}/v1  }}"),
        }
    }
}

fn assemble(parts: Vec<Part>) -> User {
    let mut user = User::default();
    let mut account_groups = Vec::new();
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for part in parts {
        match part {
            Part::ServiceAccount { namespace, name } => {
                user.name = service_account_name(&namespace, &name);
                account_groups = service_account_groups(&namespace);
            }
            Part::User(name) => user.name = name,
            Part::Group(name) => user.groups.push(name),
            Part::Extra { key, value } => extra.entry(key).or_default().push(value),
            Part::Uid(uid) => user.uid = uid,
        }
    }
    if user.groups.is_empty() {
        user.groups = account_groups;
    }
    let (own, others) = match user.name.as_str() {
        "system:anonymous" => (UNAUTHENTICATED, UNAUTHENTICATED),
        _ => (AUTHENTICATED, UNAUTHENTICATED),
    };
    if !user.is_in(own) && !user.is_in(others) {
        user.groups.push(own.into());
    }
    user.extra = extra;
    user
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn assembled(pairs: &[(&'static str, &'static str)]) -> User {
        assemble(parts(&headers(pairs)).ok().unwrap())
    }

    #[test]
    fn a_user_is_put_together_from_the_headers() {
        let user = assembled(&[
            ("impersonate-user", "bob"),
            ("impersonate-group", "dev"),
            ("impersonate-uid", "7"),
            ("impersonate-extra-acme.com%2fx", "y"),
        ]);
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
        assert_eq!(user.groups, ["dev", "system:authenticated"]);
        assert_eq!(user.extra, BTreeMap::from([("acme.com/x".to_owned(), vec!["y".to_owned()])]));
    }

    #[test]
    fn groups_default_to_those_of_the_impersonated_user() {
        let account = assembled(&[("impersonate-user", "system:serviceaccount:n:a")]);
        let expected = ["system:serviceaccounts", "system:serviceaccounts:n", "system:authenticated"];
        assert_eq!(account.groups, expected);
        assert_eq!(assembled(&[("impersonate-user", "system:anonymous")]).groups, ["system:unauthenticated"]);
        let named = assembled(&[
            ("impersonate-user", "system:serviceaccount:n:a"),
            ("impersonate-group", "system:unauthenticated"),
        ]);
        assert_eq!(named.groups, ["system:unauthenticated"]);
    }

    #[test]
    fn groups_without_a_user_are_rejected() {
        let Err(Refusal::NoUser(why)) = parts(&headers(&[("impersonate-group", "g")])) else { panic!() };
        assert_eq!(why, "requested [{Group  g    }] without impersonating a user");
    }
}
