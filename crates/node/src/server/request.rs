//! The options of exec, attach and port-forward requests. Pure.

use http::header::{CONNECTION, UPGRADE};
use http::{HeaderMap, HeaderName};

/// The streams of a remote command that a client wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) stdin: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) tty: bool,
}

pub(super) const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");
pub(super) const ACCEPTED_PROTOCOLS: HeaderName =
    HeaderName::from_static("x-accepted-stream-protocol-versions");

/// Returns the values of a query parameter.
pub(super) fn values(query: &str, name: &str) -> Vec<String> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    pairs.filter(|(key, _)| key == name).map(|(_, value)| value.into_owned()).collect()
}

impl Wanted {
    /// Parses the options of a query. A terminal has no separate stderr.
    pub(super) fn parse(query: &str) -> Result<Self, &'static str> {
        let has = |name: &str| values(query, name).first().is_some_and(|value| value == "1");
        let tty = has("tty");
        let wanted = Self { stdin: has("input"), stdout: has("output"), stderr: has("error") && !tty, tty };
        match wanted.stdin || wanted.stdout || wanted.stderr {
            true => Ok(wanted),
            false => Err("you must specify at least 1 of stdin, stdout, stderr"),
        }
    }
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> &'h str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn upgrades_to(headers: &HeaderMap, protocol: &str) -> bool {
    text(headers, &CONNECTION).to_ascii_lowercase().contains("upgrade")
        && text(headers, &UPGRADE).eq_ignore_ascii_case(protocol)
}

pub(super) fn is_websocket(headers: &HeaderMap) -> bool {
    upgrades_to(headers, "websocket")
}

pub(super) fn is_spdy(headers: &HeaderMap) -> bool {
    upgrades_to(headers, "spdy/3.1")
}

/// Returns what a client proposes in a header, which may be repeated or a list.
pub(super) fn proposed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Vec<&'h str> {
    let all = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    all.flat_map(|value| value.split(',')).map(str::trim).filter(|value| !value.is_empty()).collect()
}

/// Chooses a protocol: the first that the client proposes and the server has. `None` for a client that proposes nothing.
/// An error says that there is none.
pub(super) fn chosen<'s>(proposed: &[&str], supported: &[&'s str]) -> Result<Option<&'s str>, String> {
    if proposed.is_empty() {
        return Ok(None);
    }
    let found = proposed.iter().find_map(|wanted| supported.iter().find(|known| *known == wanted));
    let none = || {
        let (client, server) = (proposed.join(" "), supported.join(" "));
        format!("unable to negotiate protocol: client supports [{client}], server accepts [{server}]")
    };
    found.copied().map(Some).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_the_streams_of_a_command() {
        let check = |query: &str, expected: Result<(bool, bool, bool, bool), &str>| {
            let wanted = Wanted::parse(query).map(|one| (one.stdin, one.stdout, one.stderr, one.tty));
            assert_eq!(wanted, expected, "{query}");
        };
        check("command=sh&input=1&output=1&tty=1&error=1", Ok((true, true, false, true)));
        check("command=ls&output=1&error=1", Ok((false, true, true, false)));
        check("command=ls&output=true", Err("you must specify at least 1 of stdin, stdout, stderr"));
        assert_eq!(values("command=sh&command=-c&command=a%20b", "command"), ["sh", "-c", "a b"]);
    }

    #[test]
    fn the_first_protocol_that_both_sides_have_is_chosen() {
        let check = |proposed: &[&str], expected: Result<Option<&str>, &str>| {
            let found = chosen(proposed, &["v4", "v3"]);
            assert_eq!(found.as_ref().map(|found| *found).map_err(String::as_str), expected, "{proposed:?}");
        };
        check(&["v5", "v3", "v4"], Ok(Some("v3")));
        check(&[], Ok(None));
        check(&["v9"], Err("unable to negotiate protocol: client supports [v9], server accepts [v4 v3]"));
    }
}
