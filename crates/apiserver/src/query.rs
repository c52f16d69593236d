//! Query strings, parsed as in v1.34: undecodable parameters are skipped, the first value wins.

use std::borrow::Cow;

pub(crate) use setpoint_cel::percent::decode;

/// The parameters of a request.
#[derive(Debug, Default)]
pub(crate) struct Query<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Query<'a> {
    pub(crate) fn parse(text: &'a str) -> Self {
        Self(text.split('&').filter_map(pair).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    pub(crate) fn all<'b>(&'b self, name: &'b str) -> impl Iterator<Item = &'b str> {
        self.0.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_ref())
    }

    /// Returns all parameters, in their order.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_ref(), value.as_ref()))
    }

    /// Returns a flag: true if present and neither `false` nor `0`.
    pub(crate) fn flag(&self, name: &str) -> Option<bool> {
        self.get(name).map(|value| !value.eq_ignore_ascii_case("false") && value != "0")
    }

    /// Returns a number, or v1.34's message for an invalid one.
    pub(crate) fn number(&self, name: &str) -> Result<Option<i64>, String> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        match text.parse::<i64>() {
            Ok(number) => Ok(Some(number)),
            Err(_) if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Err(format!("strconv.ParseInt: parsing {text:?}: value out of range"))
            }
            Err(_) => Err(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")),
        }
    }
}

fn pair(text: &str) -> Option<(Cow<'_, str>, Cow<'_, str>)> {
    if text.is_empty() || text.contains(';') {
        return None;
    }
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    Some((decode(name, true)?, decode(value, true)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_wins_and_malformed_pairs_are_skipped() {
        let query = Query::parse("limit=1&limit=2&x=%zz&a;b=1&name=a%20b+c&flag");
        assert_eq!(query.get("limit"), Some("1"));
        assert_eq!(query.get("x"), None);
        assert_eq!(query.get("a"), None);
        assert_eq!(query.get("name"), Some("a b c"));
        assert_eq!(query.flag("flag"), Some(true));
    }

    #[test]
    fn a_malformed_number_is_named_in_the_message() {
        let query = Query::parse("a=x&b=99999999999999999999&c=-5");
        assert_eq!(query.number("a").unwrap_err(), r#"strconv.ParseInt: parsing "x": invalid syntax"#);
        assert_eq!(
            query.number("b").unwrap_err(),
            r#"strconv.ParseInt: parsing "99999999999999999999": value out of range"#
        );
        assert_eq!(query.number("c"), Ok(Some(-5)));
    }
}
