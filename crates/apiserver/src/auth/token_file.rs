//! Static tokens from a file (`--token-auth-file`).

use std::collections::BTreeMap;

use super::User;

/// Users by token.
#[derive(Clone, Default)]
pub(super) struct TokenFile(BTreeMap<String, User>);

/// An invalid token file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the token file: {problem}")]
pub struct TokenFileError {
    pub line: usize,
    pub problem: String,
}

impl TokenFile {
    /// Adds the users in a file: lines of `token,user,uid` and optionally `"group1,group2"`.
    pub(super) fn read(&mut self, csv: &str) -> Result<(), TokenFileError> {
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
            let user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            self.add(token.clone(), user.known());
        }
        Ok(())
    }

    pub(super) fn add(&mut self, token: String, user: User) {
        self.0.insert(token, user);
    }

    pub(super) fn user(&self, token: &str) -> Option<&User> {
        self.0.get(token)
    }
}

/// Splits a line into columns; a quoted column may contain commas, and two quotes escape one.
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
        let mut known = TokenFile::default();
        known.read(csv).unwrap();
        let admin = known.user("t1").unwrap();
        assert_eq!((admin.name.as_str(), admin.uid.as_str()), ("admin", "1"));
        assert_eq!(admin.groups, ["system:masters", "dev", "system:authenticated"]);
        assert_eq!(known.user("t2").unwrap().groups, ["system:authenticated"]);
        assert_eq!(known.user("wrong"), None);
    }

    #[test]
    fn a_bad_token_file_is_refused_with_its_line() {
        for (csv, line) in [("a,b,c\nx,y", 2), (",b,c", 1), ("a,b,c,\"d", 1)] {
            assert_eq!(TokenFile::default().read(csv).unwrap_err().line, line, "{csv}");
        }
    }
}
