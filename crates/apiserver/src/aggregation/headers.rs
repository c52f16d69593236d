//! The headers of requests that are forwarded to the servers behind APIServices.
//!
//! Invariant: the extension server sees the identity that this server has authenticated, never the client's claims or
//! credentials.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{AUTHORIZATION, CONNECTION, EXPECT, HOST, HeaderName, HeaderValue};

use crate::audit::AUDIT_ID;
use crate::auth::User;
use crate::header;
use crate::proxy::headers::{add_client, end_connection, is_upgrade};

const REMOTE_USER: HeaderName = HeaderName::from_static("x-remote-user");
const REMOTE_UID: HeaderName = HeaderName::from_static("x-remote-uid");
const REMOTE_GROUP: HeaderName = HeaderName::from_static("x-remote-group");
const REMOTE_EXTRA: &str = "x-remote-extra-";
const IMPERSONATE: &str = "impersonate-";
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");

/// The source and the destination of a request.
pub(super) struct Route<'a> {
    /// The destination: address and port.
    pub(super) host: &'a str,
    /// The forwarded path.
    pub(super) uri: &'a str,
    /// The client's address, unless it is part of this process.
    pub(super) client: Option<IpAddr>,
    pub(super) audit_id: Option<&'a HeaderValue>,
}

/// Returns the headers of a forwarded request. An error names the one that cannot be sent.
pub(super) fn of_request(headers: &HeaderMap, user: &User, route: &Route<'_>) -> Result<HeaderMap, String> {
    let upgrades = is_upgrade(headers);
    let mut sent = headers.clone();
    for name in [AUTHORIZATION, HOST, EXPECT] {
        sent.remove(name);
    }
    if upgrades {
        // No other header may be listed: a proxy on the way would remove it, for example the identity.
        let is_usual =
            |word: &str| ["upgrade", "keep-alive"].contains(&word.trim().to_ascii_lowercase().as_str());
        if !header::all(headers, &CONNECTION).flat_map(|value| value.split(',')).all(is_usual) {
            sent.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
        }
    } else {
        end_connection(&mut sent);
        set(&mut sent, FORWARDED_HOST, route.host)?;
        set(&mut sent, FORWARDED_URI, route.uri)?;
        sent.insert(FORWARDED_PROTO, HeaderValue::from_static("https"));
    }
    add_client(&mut sent, route.client);
    set_identity(&mut sent, user)?;
    if let Some(id) = route.audit_id {
        sent.insert(AUDIT_ID, id.clone());
    }
    Ok(sent)
}

/// Returns the headers of a request that this server sends as a system user.
pub(super) fn of_system_user(user: &User) -> Result<HeaderMap, String> {
    let mut sent = HeaderMap::new();
    set_identity(&mut sent, user)?;
    Ok(sent)
}

/// Replaces all headers about the user.
fn set_identity(sent: &mut HeaderMap, user: &User) -> Result<(), String> {
    let claims = |name: &&HeaderName| {
        let name = name.as_str();
        [&REMOTE_USER, &REMOTE_UID, &REMOTE_GROUP].iter().any(|claim| **claim == name)
            || name.starts_with(REMOTE_EXTRA)
            || name.starts_with(IMPERSONATE)
    };
    let claimed: Vec<HeaderName> = sent.keys().filter(claims).cloned().collect();
    for name in claimed {
        sent.remove(name);
    }
    set(sent, REMOTE_USER, &user.name)?;
    if !user.uid.is_empty() {
        set(sent, REMOTE_UID, &user.uid)?;
    }
    for group in &user.groups {
        sent.append(REMOTE_GROUP, value(&REMOTE_GROUP, group)?);
    }
    for (key, values) in &user.extra {
        let name = format!("{REMOTE_EXTRA}{}", escaped_key(key));
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| format!("net/http: invalid header field name {name:?}"))?;
        for text in values {
            sent.append(name.clone(), value(&name, text)?);
        }
    }
    Ok(())
}

fn set(headers: &mut HeaderMap, name: HeaderName, text: &str) -> Result<(), String> {
    let value = value(&name, text)?;
    headers.insert(name, value);
    Ok(())
}

/// An identity that does not fit into a header must not be truncated to a different one.
fn value(name: &HeaderName, text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_bytes(text.as_bytes())
        .map_err(|_| format!("net/http: invalid header field value for {:?}", name.as_str()))
}

/// Escapes characters that header names cannot contain. `%` itself is escaped, so that two keys never collide.
fn escaped_key(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&'*+-.^_`|~".contains(&byte);
    let mut escaped = String::with_capacity(key.len());
    for byte in key.bytes() {
        match is_plain(byte) {
            true => escaped.push(char::from(byte)),
            false => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    fn sent(pairs: &[(&'static str, &str)], user: &User) -> Vec<(String, String)> {
        let route = Route {
            host: "192.0.2.1:443",
            uri: "/apis/a/v1",
            client: Some(IpAddr::from([203, 0, 113, 7])),
            audit_id: None,
        };
        let sent = of_request(&headers(pairs), user, &route).unwrap();
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        sent.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
    }

    fn has(sent: &[(String, String)], name: &str, expected: &[&str]) {
        let found: Vec<&str> =
            sent.iter().filter(|(known, _)| known == name).map(|(_, value)| value.as_str()).collect();
        assert_eq!(found, expected, "{name}");
    }

    #[test]
    fn the_identity_is_the_servers_and_no_credential_passes() {
        let mut user = User::authenticated("bob", "7", vec!["devs".into()]);
        user.extra.insert("example.com/Scopes%".into(), vec!["a".into(), "b".into()]);
        let sent = sent(
            &[
                ("authorization", "Bearer secret"),
                ("x-remote-user", "admin"),
                ("x-remote-group", "system:masters"),
                ("x-remote-uid", "1"),
                ("x-remote-extra-other", "x"),
                ("impersonate-user", "admin"),
                ("impersonate-extra-a", "b"),
                ("x-forwarded-for", "198.51.100.1"),
                ("x-forwarded-host", "forged"),
                ("cookie", "a=b"),
                ("host", "api"),
            ],
            &user,
        );
        has(&sent, "x-remote-user", &["bob"]);
        has(&sent, "x-remote-uid", &["7"]);
        has(&sent, "x-remote-group", &["devs", "system:authenticated"]);
        has(&sent, "x-remote-extra-example.com%2fscopes%25", &["a", "b"]);
        for gone in
            ["authorization", "x-remote-extra-other", "impersonate-user", "impersonate-extra-a", "host"]
        {
            has(&sent, gone, &[]);
        }
        has(&sent, "x-forwarded-for", &["198.51.100.1, 203.0.113.7"]);
        has(&sent, "x-forwarded-host", &["192.0.2.1:443"]);
        has(&sent, "cookie", &["a=b"]);
    }

    #[test]
    fn an_identity_that_does_not_fit_a_header_is_an_error() {
        let route = Route { host: "a:1", uri: "/", client: None, audit_id: None };
        for user in [
            User { name: "a\nb".into(), ..User::default() },
            User::authenticated("a", "", vec!["b\r\nx-remote-group: system:masters".into()]),
        ] {
            let refused = of_request(&HeaderMap::new(), &user, &route).unwrap_err();
            assert!(refused.starts_with("net/http: invalid header field value"), "{refused}");
        }
    }

    #[test]
    fn headers_of_the_connection_end_with_it() {
        let user = User::authenticated("bob", "", Vec::new());
        let pairs =
            [("connection", "close, x-hop"), ("x-hop", "1"), ("te", "gzip, trailers"), ("keep-alive", "5")];
        let plain = sent(&pairs, &user);
        for gone in ["connection", "x-hop", "keep-alive", "x-remote-uid"] {
            has(&plain, gone, &[]);
        }
        has(&plain, "te", &["trailers"]);
        let upgraded = sent(&[("connection", "Upgrade"), ("upgrade", "websocket")], &user);
        has(&upgraded, "connection", &["Upgrade"]);
        has(&upgraded, "upgrade", &["websocket"]);
        has(&upgraded, "x-forwarded-uri", &[]);
        let sly = sent(&[("connection", "Upgrade, X-Remote-User"), ("upgrade", "websocket")], &user);
        has(&sly, "connection", &["Upgrade"]);
    }
}
