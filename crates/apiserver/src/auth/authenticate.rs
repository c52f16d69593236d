//! Finds out who sends a request: by client certificate, by bearer token, or not at all.

use std::collections::BTreeMap;
use std::str::Utf8Error;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::User;
use super::service_account::{Annotation, ISSUER, Known};
use crate::server::Server;
use crate::websocket;

/// Knows users by their tokens and certificates.
#[derive(Clone, Debug, Default)]
pub struct Authenticator {
    tokens: BTreeMap<String, User>,
}

/// A token file that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the token file: {problem}")]
pub struct TokenFileError {
    pub line: usize,
    pub problem: String,
}

impl Authenticator {
    /// Knows nobody by token; client certificates are recognized all the same.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the users of a token file: lines of `token,user,uid` and optionally `"group1,group2"`.
    pub fn with_token_file(mut self, csv: &str) -> Result<Self, TokenFileError> {
        for (at, line) in csv.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let failed = |problem: &str| TokenFileError { line: at + 1, problem: problem.into() };
            let columns = split_csv(line).ok_or_else(|| failed("a quote is not closed"))?;
            let [token, name, uid, groups @ ..] = columns.as_slice() else {
                return Err(failed("expected at least token, user name and user uid"));
            };
            if token.is_empty() {
                return Err(failed("the token is empty"));
            }
            let groups = groups.first().map_or("", String::as_str).split(',').map(str::trim);
            let groups = groups.filter(|group| !group.is_empty()).map(Into::into).collect();
            self.tokens.insert(token.clone(), User::authenticated(name.as_str(), uid.as_str(), groups));
        }
        Ok(self)
    }

    /// Adds a user known by a token.
    pub fn with_token(mut self, token: impl Into<String>, user: User) -> Self {
        self.tokens.insert(token.into(), user);
        self
    }

    /// The user of a token that was given out beforehand.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.tokens.get(token)
    }
}

/// Who sends a request, and a warning about the credential that showed it.
pub(crate) struct Sender {
    pub(crate) user: User,
    pub(crate) warning: Option<&'static str>,
    /// What the audit log says of the credential.
    pub(crate) annotations: Vec<Annotation>,
}

impl From<User> for Sender {
    fn from(user: User) -> Self {
        Self { user, warning: None, annotations: Vec::new() }
    }
}

impl Server {
    /// The sender of a request, or nothing if it shows a credential that does not count.
    /// `certificate` is the user of the connection's client certificate, already verified.
    /// A token among the subprotocols of a WebSocket is taken out of the headers: it is not for handlers.
    pub(crate) async fn sender(&self, certificate: Option<&User>, headers: &mut HeaderMap) -> Option<Sender> {
        let in_protocols = websocket::take_token(headers);
        if let Some(user) = certificate {
            return Some(user.clone().into());
        }
        let token = match (bearer_token(headers), &in_protocols) {
            (Some(Ok(token)), _) => token,
            (Some(Err(_)), _) => {
                tracing::debug!("a bearer token is not UTF-8");
                return None;
            }
            (None, Ok(Some(token))) => token,
            (None, Ok(None)) => return Some(User::anonymous().into()),
            (None, Err(why)) => {
                tracing::debug!(why, "the subprotocols of a WebSocket name no user");
                return None;
            }
        };
        match self.user_of_token(token, &[ISSUER.into()]).await {
            Ok(Known { user, warning, annotations, .. }) => Some(Sender { user, warning, annotations }),
            Err(why) => {
                tracing::debug!(why, "a token does not count");
                None
            }
        }
    }

    /// Whose token this is, and for which of these audiences.
    pub(crate) async fn user_of_token(&self, token: &str, audiences: &[String]) -> Result<Known, String> {
        const INVALID: &str = "invalid bearer token";
        if let Some(user) = self.authenticator.user(token) {
            // A token of the file is meant for this server alone.
            let audiences: Vec<String> =
                audiences.iter().filter(|wanted| *wanted == ISSUER).cloned().collect();
            return match audiences.is_empty() {
                true => Err(INVALID.into()),
                false => Ok(Known { user: user.clone(), audiences, warning: None, annotations: Vec::new() }),
            };
        }
        match self.service_account(token, audiences).await {
            Ok(Some(known)) => Ok(known),
            Ok(None) => Err(INVALID.into()),
            Err(why) => Err(format!("[{INVALID}, {why}]")),
        }
    }
}

/// The token of the request. A header of another scheme says nothing about who sends it, nor does one whose
/// token does not follow the scheme after one space.
fn bearer_token(headers: &HeaderMap) -> Option<Result<&str, Utf8Error>> {
    let mut words = headers.get(AUTHORIZATION)?.as_bytes().trim_ascii().splitn(3, |byte| *byte == b' ');
    let (scheme, token) = (words.next()?, words.next()?);
    let is_token = scheme.eq_ignore_ascii_case(b"bearer") && !token.is_empty();
    is_token.then(|| std::str::from_utf8(token))
}

/// The columns of a line; a column in quotes may hold commas, and two quotes stand for one.
fn split_csv(line: &str) -> Option<Vec<String>> {
    let mut columns = vec![String::new()];
    let mut quoted = false;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let column = columns.last_mut()?;
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                column.push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => columns.push(String::new()),
            ' ' if !quoted && column.is_empty() => {}
            other => column.push(other),
        }
    }
    (!quoted).then_some(columns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_file_names_users_and_their_groups() {
        let csv = "t1,admin,1,\"system:masters,dev\"\n# comment\n\nt2,bob,2\n";
        let known = Authenticator::new().with_token_file(csv).unwrap();
        let admin = known.user("t1").unwrap();
        assert_eq!((admin.name.as_str(), admin.uid.as_str()), ("admin", "1"));
        assert_eq!(admin.groups, ["system:masters", "dev", "system:authenticated"]);
        assert_eq!(known.user("t2").unwrap().groups, ["system:authenticated"]);
        assert_eq!(known.user("wrong"), None);
    }

    #[test]
    fn a_token_is_what_follows_the_word_bearer() {
        let headers = |value: &str| HeaderMap::from_iter([(AUTHORIZATION, value.parse().unwrap())]);
        for (value, token) in [
            ("Bearer a", Some("a")),
            (" bearer a ", Some("a")),
            ("Bearer a b", Some("a")),
            ("Bearer  a", None),
            ("Basic a", None),
            ("Bearer", None),
        ] {
            assert_eq!(bearer_token(&headers(value)), token.map(Ok), "{value}");
        }
        let unreadable = http::HeaderValue::from_bytes(b"Bearer \xff").unwrap();
        assert!(bearer_token(&HeaderMap::from_iter([(AUTHORIZATION, unreadable)])).unwrap().is_err());
    }

    #[test]
    fn a_bad_token_file_is_refused_with_its_line() {
        for (csv, line) in [("a,b,c\nx,y", 2), (",b,c", 1), ("a,b,c,\"d", 1)] {
            assert_eq!(Authenticator::new().with_token_file(csv).unwrap_err().line, line, "{csv}");
        }
    }
}
