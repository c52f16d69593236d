//! The headers of forwarded requests and of their responses.
//!
//! Invariant: the client's credentials and hop-by-hop headers are not forwarded.

use std::net::IpAddr;

use http::HeaderMap;
use http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, EXPECT, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};

use crate::header;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_URI: HeaderName = HeaderName::from_static("x-forwarded-uri");
const KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const IMPERSONATE: &str = "impersonate-";

/// CORS headers. Only this server may set them.
const CORS: [&str; 4] = [
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-allow-origin",
];

/// Whether a request asks for another protocol, as v1.34 decides it.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut values = header::all(headers, &CONNECTION);
    values.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Returns the headers of a forwarded request. `uri` is how the client reached the path.
pub(super) fn of_request(headers: &HeaderMap, client: Option<IpAddr>, uri: &str) -> HeaderMap {
    let mut sent = without_credentials(headers);
    end_connection(&mut sent);
    if let Ok(uri) = HeaderValue::from_str(uri) {
        sent.insert(FORWARDED_URI, uri);
    }
    add_client(&mut sent, client);
    sent
}

/// Returns the headers of a forwarded request for another protocol.
pub(crate) fn of_upgrade(headers: &HeaderMap, client: Option<IpAddr>) -> HeaderMap {
    let mut sent = without_credentials(headers);
    // The request is sent without its body.
    sent.remove(CONTENT_LENGTH);
    sent.remove(TRANSFER_ENCODING);
    add_client(&mut sent, client);
    sent
}

fn without_credentials(headers: &HeaderMap) -> HeaderMap {
    let mut sent = headers.clone();
    sent.remove(AUTHORIZATION);
    let impersonation = |name: &&HeaderName| name.as_str().starts_with(IMPERSONATE);
    let impersonation: Vec<HeaderName> = sent.keys().filter(impersonation).cloned().collect();
    for name in impersonation {
        sent.remove(name);
    }
    sent
}

/// Removes a request's hop-by-hop headers.
pub(crate) fn end_connection(sent: &mut HeaderMap) {
    let takes_trailers = header::all(sent, &TE).any(|value| has_token(value, "trailers"));
    remove_connection_headers(sent);
    sent.remove(EXPECT);
    if takes_trailers {
        sent.insert(TE, HeaderValue::from_static("trailers"));
    }
}

/// Appends the client to `X-Forwarded-For`.
pub(crate) fn add_client(sent: &mut HeaderMap, client: Option<IpAddr>) {
    let Some(client) = client else { return };
    let mut passed: Vec<String> = header::all(sent, &FORWARDED_FOR).map(str::to_owned).collect();
    passed.push(client.to_canonical().to_string());
    match HeaderValue::from_bytes(passed.join(", ").as_bytes()) {
        Ok(passed) => _ = sent.insert(FORWARDED_FOR, passed),
        // A value that cannot be extended is dropped, because it would be incomplete.
        Err(_) => _ = sent.remove(FORWARDED_FOR),
    }
}

/// Removes hop-by-hop headers.
fn remove_connection_headers(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = header::all(headers, &CONNECTION)
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    let usual = [CONNECTION, KEEP_ALIVE, PROXY_CONNECTION, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION];
    for name in usual.into_iter().chain([TE, TRAILER, TRANSFER_ENCODING, UPGRADE]) {
        headers.remove(name);
    }
}

fn has_token(value: &str, token: &str) -> bool {
    value.split(',').any(|word| word.trim().eq_ignore_ascii_case(token))
}

/// Returns the headers of a response that is passed on.
pub(crate) fn of_response(mut received: HeaderMap) -> HeaderMap {
    let trailers = received.get(TRAILER).cloned();
    remove_connection_headers(&mut received);
    // Announced trailers follow the body.
    if let Some(trailers) = trailers {
        received.insert(TRAILER, trailers);
    }
    for name in CORS {
        received.remove(name);
    }
    if !received.contains_key(CACHE_CONTROL) {
        received.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    }
    received
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

    fn names(headers: &HeaderMap) -> Vec<&str> {
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn no_credential_passes() {
        let sent = headers(&[
            ("authorization", "Bearer secret"),
            ("impersonate-user", "jane"),
            ("impersonate-extra-a", "b"),
            ("proxy-authorization", "Basic x"),
            ("cookie", "a=b"),
            ("host", "api"),
            ("x-custom", "y"),
        ]);
        let passed = of_request(&sent, None, "/api/v1/nodes/n/proxy/x");
        assert_eq!(names(&passed), ["cookie", "host", "x-custom", "x-forwarded-uri"]);
        let upgraded = of_upgrade(&sent, None);
        assert!(!upgraded.contains_key(AUTHORIZATION) && !upgraded.contains_key("impersonate-user"));
    }

    #[test]
    fn the_client_is_added_to_the_proxies_before_it() {
        let client = Some("203.0.113.7".parse().unwrap());
        let sent = headers(&[("x-forwarded-for", "198.51.100.1"), ("x-forwarded-for", "198.51.100.2")]);
        for passed in [of_request(&sent, client, "/"), of_upgrade(&sent, client)] {
            let values: Vec<_> = passed.get_all(FORWARDED_FOR).iter().collect();
            assert_eq!(values, ["198.51.100.1, 198.51.100.2, 203.0.113.7"]);
        }
    }

    #[test]
    fn headers_of_the_connection_end_with_it() {
        let sent = headers(&[
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("te", "gzip, trailers"),
            ("expect", "100-continue"),
        ]);
        let passed = of_request(&sent, None, "/x");
        assert_eq!(
            (names(&passed), &passed[TE]),
            (vec!["te", "x-forwarded-uri"], &"trailers".parse().unwrap())
        );
        let upgraded = of_upgrade(&headers(&[("connection", "Upgrade"), ("upgrade", "SPDY/3.1")]), None);
        assert_eq!(names(&upgraded), ["connection", "upgrade"]);
        let answered = of_response(headers(&[
            ("connection", "close"),
            ("trailer", "x-sum"),
            ("access-control-allow-origin", "*"),
        ]));
        assert_eq!(names(&answered), ["cache-control", "trailer"]);
    }
}
