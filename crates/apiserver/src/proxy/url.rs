//! URLs in responses: parsed and written as Go does, and rewritten to lead through the proxy.

use super::escape;
use crate::query::decode;

/// A reference to a URL, as Go's `url.Parse` reads it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Url<'a> {
    scheme: String,
    /// The part after a scheme without a slash: `mailto:someone`.
    opaque: &'a str,
    /// With user and password.
    authority: &'a str,
    path: String,
    /// The path as it was written, if it was not changed.
    written_path: Option<&'a str>,
    /// With its question mark.
    query: &'a str,
    /// With its hash mark.
    fragment: &'a str,
}

/// How to reach a page through the proxy.
pub(crate) struct Rewrite {
    /// The proxy path of the backend.
    pub(crate) prefix: String,
    /// The backend, as dialed.
    pub(crate) source: String,
    /// This server, as named by the client.
    pub(crate) host: String,
    /// The server that rewritten URLs name; `None` for the one that the page came from.
    pub(crate) named: Option<String>,
}

impl Rewrite {
    /// Rewrites a URL on a page of the backend. Returns `None` if the text is not a URL.
    pub(crate) fn url<'a>(&'a self, text: &'a str) -> Option<String> {
        let mut url = Url::parse(text)?;
        let host = url.host();
        let is_elsewhere = !host.is_empty() && host != self.source && host != self.host;
        if is_elsewhere || !url.path.starts_with('/') {
            return Some(url.to_string());
        }
        // A URL that names this server stays unchanged.
        match &self.named {
            Some(named) => (url.scheme, url.authority) = ("https".into(), named),
            None if host != self.host => (url.scheme, url.authority) = (String::new(), ""),
            None => {}
        }
        if !url.path.starts_with(&self.prefix) {
            let slash = if url.path.ends_with('/') { "/" } else { "" };
            url.path = escape::join(&self.prefix, &url.path) + slash;
            url.written_path = None;
        }
        Some(url.to_string())
    }
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_control()) {
            return None;
        }
        let (text, fragment) = cut(text, '#');
        decode(fragment, false)?;
        let (scheme, text) = split_scheme(text)?;
        let (rest, query) = cut(text, '?');
        let scheme = scheme.to_ascii_lowercase();
        if !rest.starts_with('/') {
            if !scheme.is_empty() {
                return Some(Self { scheme, opaque: rest, query, fragment, ..Self::default() });
            }
            if rest.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return None;
            }
        }
        let (authority, written) = match rest.strip_prefix("//") {
            Some(rest) if !scheme.is_empty() || !rest.starts_with('/') => {
                rest.split_at(rest.find('/').unwrap_or(rest.len()))
            }
            _ => ("", rest),
        };
        if authority.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '|', '}']) {
            return None;
        }
        let path = decode(written, false)?.into_owned();
        let written_path = is_escaped(written).then_some(written);
        Some(Self { scheme, opaque: "", authority, path, written_path, query, fragment })
    }

    /// The host and port.
    fn host(&self) -> &str {
        self.authority.rsplit('@').next().unwrap_or_default()
    }
}

/// Splits before a separator, which stays with the second part.
fn cut(text: &str, separator: char) -> (&str, &str) {
    text.split_at(text.find(separator).unwrap_or(text.len()))
}

/// Splits off the scheme, if there is one. A text that starts with a colon is not a URL.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b':' if at == 0 => return None,
            b':' => return Some((&text[..at], &text[at + 1..])),
            byte if byte.is_ascii_alphabetic() => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            _ => return Some(("", text)),
        }
    }
    Some(("", text))
}

/// Whether a path has no byte that Go would escape.
fn is_escaped(path: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:@[]%/".contains(&byte);
    path.bytes().all(is_plain)
}

impl std::fmt::Display for Url<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { scheme, opaque, authority, query, fragment, .. } = self;
        if !scheme.is_empty() {
            write!(f, "{scheme}:")?;
        }
        if !opaque.is_empty() {
            return write!(f, "{opaque}{query}{fragment}");
        }
        let has_host = !authority.is_empty() || (!scheme.is_empty() && !self.path.is_empty());
        if has_host {
            write!(f, "//{authority}")?;
        }
        let path =
            self.written_path.map_or_else(|| escape::path(&self.path).into(), std::borrow::Cow::Borrowed);
        write!(f, "{path}{query}{fragment}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_the_server_behind_lead_through_the_proxy() {
        let rewrite = Rewrite {
            prefix: "/api/v1/nodes/n/proxy".into(),
            source: "192.0.2.1:10250".into(),
            host: "localhost:8001".into(),
            named: None,
        };
        for (url, expected) in [
            ("/x", "/api/v1/nodes/n/proxy/x"),
            ("/x/?a=b&c#d", "/api/v1/nodes/n/proxy/x/?a=b&c#d"),
            ("/", "/api/v1/nodes/n/proxy/"),
            ("/a/../b", "/api/v1/nodes/n/proxy/b"),
            ("/a%20b", "/api/v1/nodes/n/proxy/a%20b"),
            ("/api/v1/nodes/n/proxy/y", "/api/v1/nodes/n/proxy/y"),
            ("https://192.0.2.1:10250/x", "/api/v1/nodes/n/proxy/x"),
            ("http://localhost:8001/x", "http://localhost:8001/api/v1/nodes/n/proxy/x"),
            ("http://elsewhere.example/x", "http://elsewhere.example/x"),
            ("//elsewhere.example/x", "//elsewhere.example/x"),
            ("x/y", "x/y"),
            ("../y?z", "../y?z"),
            ("#top", "#top"),
            ("", ""),
            ("mailto:a@b.example", "mailto:a@b.example"),
            ("JavaScript:void(0)", "javascript:void(0)"),
        ] {
            assert_eq!(rewrite.url(url).as_deref(), Some(expected), "{url}");
        }
        for text in ["%zz", ":x", "/a\nb", "a:b/c".strip_prefix("a").unwrap_or("")] {
            assert_eq!(rewrite.url(text), None, "{text}");
        }
    }

    #[test]
    fn urls_can_be_made_to_name_the_server_behind() {
        let host = "192.0.2.1:443".to_owned();
        let rewrite =
            Rewrite { prefix: String::new(), source: host.clone(), host: host.clone(), named: Some(host) };
        for (url, expected) in [
            ("/x?y", "https://192.0.2.1:443/x?y"),
            ("http://192.0.2.1:443/x", "https://192.0.2.1:443/x"),
            ("http://elsewhere.example/x", "http://elsewhere.example/x"),
            ("x/y", "x/y"),
        ] {
            assert_eq!(rewrite.url(url).as_deref(), Some(expected), "{url}");
        }
    }
}
