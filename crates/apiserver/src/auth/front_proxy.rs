//! Users authenticated by a front proxy, which presents its own certificate and passes the user in headers.

use http::{HeaderMap, HeaderName};

use super::User;
use crate::query;

/// The headers that carry the user, and the proxies allowed to set them.
#[derive(Clone, Debug, Default)]
pub struct FrontProxy {
    /// Allowed common names of proxy certificates; empty allows any certificate signed by the proxies' CA.
    pub allowed_names: Vec<String>,
    pub username_headers: Vec<String>,
    pub uid_headers: Vec<String>,
    pub group_headers: Vec<String>,
    pub extra_prefixes: Vec<String>,
}

impl FrontProxy {
    /// Returns the headers used between API servers.
    pub fn standard() -> Self {
        let one = |name: &str| vec![name.to_owned()];
        Self {
            allowed_names: Vec::new(),
            username_headers: one("X-Remote-User"),
            uid_headers: one("X-Remote-Uid"),
            group_headers: one("X-Remote-Group"),
            extra_prefixes: one("X-Remote-Extra-"),
        }
    }

    /// Returns the user named in the headers of a request from a proxy with a verified certificate.
    pub(crate) fn user(&self, common_name: &str, headers: &HeaderMap) -> Result<Option<User>, String> {
        if !self.allowed_names.is_empty() && !self.allowed_names.iter().any(|name| name == common_name) {
            return Err(format!("x509: subject with cn={common_name} is not in the allowed list"));
        }
        let Some(name) = first(headers, &self.username_headers)? else { return Ok(None) };
        let mut user =
            User { name, uid: first(headers, &self.uid_headers)?.unwrap_or_default(), ..User::default() };
        for header in &self.group_headers {
            user.groups.extend(texts(headers, header)?.into_iter().filter(|group| !group.is_empty()));
        }
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_lowercase();
            for header in headers.keys().filter(|name| name.as_str().starts_with(&prefix)) {
                let written = &header.as_str()[prefix.len()..];
                let key = query::decode(written, false).map_or(written.to_owned(), Into::into);
                user.extra.entry(key).or_default().extend(texts(headers, header.as_str())?);
            }
        }
        Ok(Some(user.known()))
    }

    /// Removes the headers: handlers must not see them, and they must not be forwarded to another server.
    pub(crate) fn clear(&self, headers: &mut HeaderMap) {
        for name in [&self.username_headers, &self.uid_headers, &self.group_headers].into_iter().flatten() {
            headers.remove(name.as_str());
        }
        for prefix in &self.extra_prefixes {
            let prefix = prefix.to_lowercase();
            let named = headers.keys().filter(|name| name.as_str().starts_with(&prefix));
            let named: Vec<HeaderName> = named.cloned().collect();
            for name in named {
                headers.remove(name);
            }
        }
    }
}

/// Returns the first value of the first header for which it is non-empty.
fn first(headers: &HeaderMap, names: &[String]) -> Result<Option<String>, String> {
    for name in names {
        if let Some(text) = texts(headers, name)?.into_iter().next().filter(|text| !text.is_empty()) {
            return Ok(Some(text));
        }
    }
    Ok(None)
}

/// Returns a header's values. A value that is not UTF-8 rejects the request: names are never guessed.
fn texts(headers: &HeaderMap, name: &str) -> Result<Vec<String>, String> {
    let values = headers.get_all(name).iter();
    let texts = values.map(|value| std::str::from_utf8(value.as_bytes()).map(str::to_owned));
    texts.collect::<Result<_, _>>().map_err(|_| format!("the value of the header {name} is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers() -> HeaderMap {
        let pairs = [
            ("x-remote-user", "bob"),
            ("x-remote-uid", "7"),
            ("x-remote-group", "a"),
            ("x-remote-group", "b"),
            ("x-remote-extra-acme.com%2fx", "y"),
            ("accept", "*/*"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_proxy_names_a_user() {
        let user = FrontProxy::standard().user("proxy", &headers()).unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("bob", "7"));
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert_eq!(user.extra["acme.com/x"], ["y"]);
        assert_eq!(FrontProxy::standard().user("proxy", &HeaderMap::new()), Ok(None));
    }

    #[test]
    fn only_allowed_proxies_are_trusted() {
        let proxy = FrontProxy { allowed_names: vec!["front".into()], ..FrontProxy::standard() };
        assert!(proxy.user("back", &headers()).is_err());
        assert!(proxy.user("front", &headers()).unwrap().is_some());
    }

    #[test]
    fn headers_that_name_a_user_are_removed() {
        let mut headers = headers();
        FrontProxy::standard().clear(&mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["accept"]);
    }
}
