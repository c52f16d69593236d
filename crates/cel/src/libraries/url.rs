//! URLs.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Outcome, failed};
use crate::percent;
use crate::value::{Key, Val};

/// The components of a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url {
    scheme: String,
    host: String,
    path: String,
    query: String,
}

pub(super) fn call(function: &str, args: &[Val]) -> Option<Outcome> {
    Some(match (function, args) {
        ("url", [Val::String(text)]) => match Url::parse(text) {
            Some(url) => Ok(Val::Url(Arc::new(url))),
            None => Err(failed(format!(
                "URL parse error during conversion from string: parse {text:?}: invalid URI for request"
            ))),
        },
        ("isURL", [Val::String(text)]) => Ok(Val::Bool(Url::parse(text).is_some())),
        ("getScheme", [Val::Url(url)]) => Ok(Val::text(url.scheme.as_str())),
        ("getHost", [Val::Url(url)]) => Ok(Val::text(url.host.as_str())),
        ("getHostname", [Val::Url(url)]) => Ok(Val::text(url.host_and_port().0)),
        ("getPort", [Val::Url(url)]) => Ok(Val::text(url.host_and_port().1)),
        ("getEscapedPath", [Val::Url(url)]) => Ok(Val::text(url.path.as_str())),
        ("getQuery", [Val::Url(url)]) => Ok(url.parameters()),
        _ => return None,
    })
}

impl Url {
    /// Parses an absolute URL, or an absolute path.
    fn parse(text: &str) -> Option<Self> {
        let is_clean = !text.is_empty() && !text.chars().any(|letter| letter.is_control() || letter == ' ');
        let text = Some(text).filter(|_| is_clean)?;
        let (scheme, rest) = match text.split_once("://") {
            _ if text.starts_with('/') => ("", text),
            Some((scheme, rest)) => (scheme, rest),
            None => (text.split_once(':')?.0, ""),
        };
        let is_scheme = scheme.is_empty()
            || scheme.starts_with(|letter: char| letter.is_ascii_alphabetic())
                && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter));
        if !is_scheme {
            return None;
        }
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (host, rest) = if scheme.is_empty() { ("", rest) } else { rest.split_at(end) };
        let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        Some(Self {
            scheme: scheme.to_lowercase(),
            host: host.into(),
            path: path.split('#').next().unwrap_or_default().into(),
            query: query.split('#').next().unwrap_or_default().into(),
        })
    }

    fn host_and_port(&self) -> (&str, &str) {
        match self.host.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host.trim_matches(['[', ']']), port),
            _ => (self.host.trim_matches(['[', ']']), ""),
        }
    }

    fn parameters(&self) -> Val {
        let mut found: BTreeMap<String, Vec<Val>> = BTreeMap::new();
        for pair in self.query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let decoded =
                |text: &str| percent::decode(text, true).map_or_else(String::new, |text| text.into_owned());
            found.entry(decoded(name)).or_default().push(Val::text(decoded(value)));
        }
        Val::map(found.into_iter().map(|(name, values)| (Key::String(name.into()), Val::list(values))))
    }
}
