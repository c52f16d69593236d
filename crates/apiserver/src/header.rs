//! Header values as text.
//!
//! A value that is not UTF-8 is an unknown value, never an absent one: it must not turn into a default that the client
//! did not ask for.

use http::{HeaderMap, HeaderName};

/// Replaces values that are not UTF-8; no token, media type or protocol contains it.
const UNREADABLE: &str = "\u{fffd}";

/// Returns the first value of a header; empty if there is none.
pub(crate) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).map_or("", |value| std::str::from_utf8(value.as_bytes()).unwrap_or(UNREADABLE))
}

/// Returns all values of a header.
pub(crate) fn all<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter();
    values.map(|value| std::str::from_utf8(value.as_bytes()).unwrap_or(UNREADABLE))
}
