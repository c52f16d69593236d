//! The request part of an event: its ID, source and target.

use std::net::{IpAddr, Ipv4Addr};

use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};

use super::event::{Event, ObjectReference, UserInfo};
use super::policy::{Attributes, Object};
use crate::auth::User;
use crate::chain::Caller;
use crate::request::Target;
use crate::server::Server;

pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static("audit-id");
/// The source of in-process requests.
pub(super) const OWN_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Maximum length of a user agent, as in v1.34.
const USER_AGENT_BYTES: usize = 1024;

/// Returns a request's ID: the client's own, or a new one. In-process requests need none unless auditing is on.
pub(crate) fn id(server: &Server, caller: &Caller, headers: &HeaderMap) -> Option<HeaderValue> {
    if matches!(caller, Caller::InProcess(_)) && server.audit.is_none() {
        return None;
    }
    let own = headers.get(AUDIT_ID).filter(|id| !id.is_empty());
    own.cloned().or_else(|| HeaderValue::from_str(&server.rng.uid().to_string()).ok())
}

/// A request that has reached the policy.
pub(crate) struct Received<'a> {
    /// The authenticated user, if any.
    pub(crate) user: Option<&'a User>,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) target: &'a Target<'a>,
}

impl Received<'_> {
    pub(super) fn attributes<'a>(&'a self, verb: &'a str) -> Attributes<'a> {
        let object = self.target.resource.as_ref().map(|target| Object {
            group: &target.group,
            version: &target.version,
            resource: &target.resource,
            subresource: target.subresource.as_deref().unwrap_or_default(),
            namespace: target.namespace.as_deref().unwrap_or_default(),
            name: target.named().unwrap_or_default(),
        });
        Attributes { user: self.user, verb, path: &self.target.path, object }
    }

    /// Writes the request's data into its event.
    pub(super) fn describe(&self, event: &mut Event, verb: &str, peer: IpAddr) {
        let attributes = self.attributes(verb);
        event.verb = verb.to_owned();
        let path = self.uri.path_and_query().map_or(self.uri.path(), http::uri::PathAndQuery::as_str);
        event.request_uri = path.to_owned();
        event.user_agent = user_agent(self.headers);
        event.source_ips = source_ips(self.headers, peer).iter().map(IpAddr::to_string).collect();
        event.user = self.user.map(UserInfo::from).unwrap_or_default();
        event.object_ref = attributes.object.as_ref().map(ObjectReference::from);
    }
}

impl From<&Object<'_>> for ObjectReference {
    fn from(object: &Object<'_>) -> Self {
        Self {
            resource: object.resource.to_owned(),
            namespace: object.namespace.to_owned(),
            name: object.name.to_owned(),
            api_group: object.group.to_owned(),
            api_version: object.version.to_owned(),
            subresource: object.subresource.to_owned(),
            ..Self::default()
        }
    }
}

fn text(headers: &HeaderMap, name: impl http::header::AsHeaderName) -> String {
    headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).unwrap_or_default()
}

fn user_agent(headers: &HeaderMap) -> String {
    let mut agent = text(headers, USER_AGENT);
    if agent.len() > USER_AGENT_BYTES {
        let mut end = USER_AGENT_BYTES;
        while !agent.is_char_boundary(end) {
            end -= 1;
        }
        agent.truncate(end);
        agent.push_str("...TRUNCATED");
    }
    agent
}

/// Returns the addresses that proxies report, then the connection's address: only the latter is reliable.
fn source_ips(headers: &HeaderMap, peer: IpAddr) -> Vec<IpAddr> {
    let forwarded = text(headers, "x-forwarded-for");
    let mut all: Vec<IpAddr> = forwarded.split(',').filter_map(address).collect();
    if let Some(real) = address(&text(headers, "x-real-ip")).filter(|real| !all.contains(real)) {
        all.push(real);
    }
    let peer = peer.to_canonical();
    if all.last() != Some(&peer) {
        all.push(peer);
    }
    all
}

/// Parses an address like v1.34: numbers in an IPv4 address may have leading zeros.
fn address(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address.to_canonical());
    }
    let octet =
        |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()).then(|| part.parse::<u8>().ok())?;
    let octets: Option<Vec<u8>> = text.split('.').map(octet).collect();
    let octets: [u8; 4] = octets?.try_into().ok()?;
    Some(IpAddr::from(octets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_end_with_that_of_the_connection() {
        for (forwarded, real, peer, expected) in [
            ("", "", "10.0.0.9", "10.0.0.9"),
            ("10.0.0.1, nonsense,10.0.0.2", "", "10.0.0.9", "10.0.0.1 10.0.0.2 10.0.0.9"),
            ("10.0.0.1", "10.0.0.1", "10.0.0.9", "10.0.0.1 10.0.0.9"),
            ("10.0.0.1", "10.0.0.3", "10.0.0.9", "10.0.0.1 10.0.0.3 10.0.0.9"),
            ("10.0.0.1, 10.0.0.9", "", "10.0.0.9", "10.0.0.1 10.0.0.9"),
            ("010.000.0.01", "", "::ffff:10.0.0.9", "10.0.0.1 10.0.0.9"),
            ("fe80::1%eth0, 2001:DB8::1", "", "::1", "2001:db8::1 ::1"),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-forwarded-for", forwarded.parse().unwrap());
            headers.insert("x-real-ip", real.parse().unwrap());
            let found = source_ips(&headers, peer.parse().unwrap());
            let found: Vec<String> = found.iter().map(IpAddr::to_string).collect();
            assert_eq!(found.join(" "), expected, "{forwarded} {real} {peer}");
        }
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        let of = |agent: String| user_agent(&HeaderMap::from_iter([(USER_AGENT, agent.parse().unwrap())]));
        assert_eq!(of("x".repeat(1024)).len(), 1024);
        assert_eq!(of("x".repeat(1025)), "x".repeat(1024) + "...TRUNCATED");
    }
}
