//! Bootstrap tokens, with which a machine authenticates before it has a certificate. Each is stored in a Secret in
//! `kube-system`, which also says what the token may be used for.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde::Deserialize;

/// The type of the Secrets.
pub const BOOTSTRAP_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The prefix of the Secrets' names. The token ID follows.
const BOOTSTRAP_PREFIX: &str = "bootstrap-token-";

/// The group of all bootstrap tokens, and the prefix of their additional groups.
const GROUP: &str = "system:bootstrappers";
const USER: &str = "system:bootstrap:";
/// The maximum number of characters after [`GROUP`] and a colon.
const GROUP_LETTERS: usize = 256;

/// A bootstrap token: its public ID and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct BootstrapToken {
    pub id: String,
    pub secret: String,
}

impl std::fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "BootstrapToken({})", self.id)
    }
}

impl BootstrapToken {
    /// Parses `abcdef.0123456789abcdef`.
    pub fn parse(token: &str) -> Option<Self> {
        let (id, secret) = token.split_once('.')?;
        let is_token = is_word(id, 6) && is_word(secret, 16);
        is_token.then(|| Self { id: id.to_owned(), secret: secret.to_owned() })
    }

    /// Returns the name of the Secret that stores the token.
    pub fn secret_name(&self) -> String {
        format!("{BOOTSTRAP_PREFIX}{}", self.id)
    }

    /// Returns the user name that the token authenticates as.
    pub fn user(&self) -> String {
        format!("{USER}{}", self.id)
    }
}

fn is_word(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

/// The data of a bootstrap token Secret.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct BootstrapSecret {
    data: Option<BTreeMap<String, String>>,
}

/// The remaining validity of a token.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    Forever,
    For(Duration),
    Nothing,
}

impl BootstrapSecret {
    fn get(&self, field: &str) -> Option<String> {
        let bytes = STANDARD.decode(self.data.as_ref()?.get(field)?).ok()?;
        String::from_utf8(bytes).ok().filter(|text| !text.is_empty())
    }

    fn has_usage(&self, usage: &str) -> bool {
        self.get(&format!("usage-bootstrap-{usage}")).as_deref() == Some("true")
    }

    /// Returns the remaining validity. A token with an invalid expiration has expired.
    pub fn left(&self, now: Timestamp) -> Left {
        let Some(end) = self.get("expiration") else { return Left::Forever };
        let left = end.parse::<Timestamp>().map(|end| end.duration_since(now));
        match left.ok().and_then(|left| Duration::try_from(left).ok()).filter(|left| !left.is_zero()) {
            Some(left) => Left::For(left),
            None => Left::Nothing,
        }
    }

    /// Returns the token of the Secret `name`, if it may be used for signing now.
    pub fn signing_token(&self, name: &str, now: Timestamp) -> Option<BootstrapToken> {
        let is_named = |id: &String| name.strip_prefix(BOOTSTRAP_PREFIX) == Some(id) && is_word(id, 6);
        let id = self.get("token-id").filter(is_named)?;
        let secret = self.get("token-secret")?;
        let may_sign = self.has_usage("signing") && self.left(now) != Left::Nothing;
        may_sign.then_some(BootstrapToken { id, secret })
    }

    /// Returns the groups that `token` authenticates as, or why it is invalid.
    pub fn authenticate(&self, token: &BootstrapToken, now: Timestamp) -> Result<Vec<String>, &'static str> {
        let kept = self.get("token-secret").unwrap_or_default();
        if !is_same(kept.as_bytes(), token.secret.as_bytes()) {
            return Err("token-secret is another one");
        }
        if self.get("token-id").as_ref() != Some(&token.id) {
            return Err("token-id is another one");
        }
        if self.left(now) == Left::Nothing {
            return Err("it has expired");
        }
        if !self.has_usage("authentication") {
            return Err("usage-bootstrap-authentication is not true");
        }
        self.groups().ok_or("auth-extra-groups names a group that does not begin with system:bootstrappers:")
    }

    /// Returns the groups, sorted and without duplicates. `None` if one of them is not allowed for bootstrap tokens.
    fn groups(&self) -> Option<Vec<String>> {
        let extra = self.get("auth-extra-groups").unwrap_or_default();
        let extra = extra.split(',').filter(|_| !extra.is_empty());
        let mut groups = vec![GROUP.to_owned()];
        for group in extra {
            groups.push(is_group(group).then(|| group.to_owned())?);
        }
        groups.sort();
        groups.dedup();
        Some(groups)
    }
}

fn is_group(group: &str) -> bool {
    let own = group.strip_prefix(GROUP).and_then(|rest| rest.strip_prefix(':')).unwrap_or_default();
    let is_letter = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let ends_well = own.bytes().last().is_some_and(is_letter);
    ends_well
        && own.len() <= GROUP_LETTERS
        && own.bytes().all(|byte| is_letter(byte) || byte == b':' || byte == b'-')
}

/// Compares two secrets in constant time.
pub fn is_same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len()
        && one.iter().zip(other).fold(0, |differences, (a, b)| differences | (a ^ b)) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "abcdef.0123456789abcdef";

    fn secret(fields: &[(&str, &str)]) -> BootstrapSecret {
        let all = [
            ("token-id", "abcdef"),
            ("token-secret", "0123456789abcdef"),
            ("usage-bootstrap-authentication", "true"),
        ];
        let fields = all.iter().chain(fields).map(|(key, value)| ((*key).to_owned(), STANDARD.encode(value)));
        BootstrapSecret { data: Some(fields.collect()) }
    }

    fn groups(fields: &[(&str, &str)]) -> Result<Vec<String>, &'static str> {
        let now = "2025-01-01T00:00:00Z".parse().unwrap();
        secret(fields).authenticate(&BootstrapToken::parse(TOKEN).unwrap(), now)
    }

    #[test]
    fn a_token_is_valid_as_its_secret_says() {
        assert_eq!(groups(&[]).unwrap(), ["system:bootstrappers"]);
        let extra = "system:bootstrappers:z,system:bootstrappers:a-b:c,system:bootstrappers:z";
        let expected = ["system:bootstrappers", "system:bootstrappers:a-b:c", "system:bootstrappers:z"];
        assert_eq!(groups(&[("auth-extra-groups", extra)]).unwrap(), expected);
        assert!(groups(&[("expiration", "2025-01-01T00:00:01Z")]).is_ok());
        for fields in [
            ("token-secret", "0123456789abcdee"),
            ("token-secret", ""),
            ("token-id", "abcdeg"),
            ("expiration", "2025-01-01T00:00:00Z"),
            ("expiration", "tomorrow"),
            ("usage-bootstrap-authentication", "yes"),
            ("auth-extra-groups", "system:masters"),
            ("auth-extra-groups", "system:bootstrappers:a,"),
            ("auth-extra-groups", "system:bootstrappers:-"),
        ] {
            assert!(groups(&[fields]).is_err(), "{fields:?}");
        }
    }

    #[test]
    fn a_token_is_an_id_and_a_secret() {
        for text in
            ["abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef0123456789abcdef", "a.b.c", ""]
        {
            assert_eq!(BootstrapToken::parse(text), None, "{text}");
        }
        let token = BootstrapToken::parse(TOKEN).unwrap();
        assert_eq!(token.secret_name(), "bootstrap-token-abcdef");
        assert_eq!(token.user(), "system:bootstrap:abcdef");
    }
}
