//! Expands words: variables, command substitution, arithmetic, field splitting, file names.

use futures::FutureExt;
use futures::future::BoxFuture;

use super::pace::MAX_TEXT;
use super::{Io, Output, Shell, Stop, UnknownCommands, arithmetic};
use crate::files::{path, pattern};
use crate::shell::{Expansion, List, Operator, Part, Word};

/// The overhead of a field.
const FIELD_BYTES: usize = 32;

/// The remaining size of a command's expansion, at any pace. Its fields take up to three times that during expansion: 3
/// MiB.
pub(super) struct Room(usize);

impl Default for Room {
    fn default() -> Self {
        Self(MAX_TEXT)
    }
}

impl Room {
    pub(super) fn take(&mut self, bytes: usize) -> Result<(), Stop> {
        self.0 = self.0.checked_sub(bytes).ok_or(Stop::Unknown)?;
        Ok(())
    }
}

/// The fields of a command.
#[derive(Default)]
struct Fields {
    done: Vec<String>,
    room: Room,
}

impl Fields {
    fn push(&mut self, text: String) {
        self.done.push(text);
    }
}

/// A field of a word under construction.
#[derive(Default)]
struct Field {
    text: String,
    /// The same as a pattern, in which quoted characters stand for themselves.
    pattern: String,
    is_pattern: bool,
    has_bracket: bool,
    /// Whether there is a field even if it is empty.
    exists: bool,
}

impl Field {
    fn push(&mut self, c: char, is_quoted: bool) {
        self.text.push(c);
        if is_quoted && matches!(c, '*' | '?' | '[' | ']' | '\\') {
            self.pattern.push('\\');
        }
        self.is_pattern |= !is_quoted && (matches!(c, '*' | '?') || c == ']' && self.has_bracket);
        self.has_bracket |= !is_quoted && c == '[';
        self.pattern.push(c);
        self.exists = true;
    }

    fn push_text(&mut self, text: &str, is_quoted: bool, room: &mut Room) -> Result<(), Stop> {
        room.take(text.len())?;
        text.chars().for_each(|c| self.push(c, is_quoted));
        self.exists |= is_quoted;
        Ok(())
    }
}

impl Shell {
    /// Expands words into fields.
    pub(super) async fn fields(&mut self, words: &[Word], io: &Io) -> Result<Vec<String>, Stop> {
        let mut fields = Fields::default();
        for word in words {
            self.push_fields(word, io, &mut fields).await?;
        }
        Ok(fields.done)
    }

    async fn push_fields(&mut self, word: &Word, io: &Io, fields: &mut Fields) -> Result<(), Stop> {
        let mut field = Field { exists: word.has_quotes, ..Field::default() };
        for (at, part) in word.parts.iter().enumerate() {
            match part {
                Part::Text { text, is_quoted } => {
                    let rest = text.strip_prefix('~').filter(|_| at == 0 && !is_quoted);
                    let rest = rest.filter(|rest| rest.is_empty() || rest.starts_with('/'));
                    if rest.is_some() {
                        let home = self.get("HOME")?.unwrap_or("/root").to_owned();
                        field.push_text(&home, true, &mut fields.room)?;
                    }
                    field.push_text(rest.unwrap_or(text), *is_quoted, &mut fields.room)?;
                }
                Part::Expanded { expansion: Expansion::Variable(name), is_quoted: true } if name == "@" => {
                    // Each parameter is a field. Without any, there is none.
                    field.exists = word.parts.len() > 1;
                    for (at, parameter) in self.parameters.clone().iter().enumerate() {
                        if at > 0 {
                            self.finish(std::mem::take(&mut field), fields).await?;
                        }
                        self.machine.pace.read(parameter.len())?;
                        field.push_text(parameter, true, &mut fields.room)?;
                    }
                }
                Part::Expanded { expansion, is_quoted } => {
                    let value = self.expansion(expansion, io).await?;
                    match is_quoted {
                        true => field.push_text(&value, true, &mut fields.room)?,
                        false => self.split(&value, &mut field, fields).await?,
                    }
                }
            }
        }
        self.finish(field, fields).await
    }

    /// Splits an unquoted value at whitespace.
    async fn split(&mut self, value: &str, field: &mut Field, fields: &mut Fields) -> Result<(), Stop> {
        fields.room.take(value.len())?;
        for c in value.chars() {
            match c.is_ascii_whitespace() {
                true => self.finish(std::mem::take(field), fields).await?,
                false => field.push(c, false),
            }
        }
        Ok(())
    }

    async fn finish(&mut self, field: Field, fields: &mut Fields) -> Result<(), Stop> {
        if !field.exists {
            return Ok(());
        }
        fields.room.take(FIELD_BYTES)?;
        self.machine.owe(FIELD_BYTES + field.text.len());
        if field.is_pattern {
            let found = self.files_that_match(&field.pattern).await?;
            if !found.is_empty() {
                for name in found {
                    fields.room.take(FIELD_BYTES + name.len())?;
                    self.machine.pace.read(name.len())?;
                    fields.push(name);
                }
                return Ok(());
            }
        }
        fields.push(field.text);
        Ok(())
    }

    /// Expands a word into one text.
    pub(super) fn text<'a>(&'a mut self, word: &'a Word, io: &'a Io) -> BoxFuture<'a, Result<String, Stop>> {
        async move { Ok(self.joined(word, io).await?.text) }.boxed()
    }

    /// Expands a word into a pattern.
    pub(super) async fn pattern(&mut self, word: &Word, io: &Io) -> Result<String, Stop> {
        Ok(self.joined(word, io).await?.pattern)
    }

    async fn joined(&mut self, word: &Word, io: &Io) -> Result<Field, Stop> {
        let (mut field, mut room) = (Field::default(), Room::default());
        for part in &word.parts {
            match part {
                Part::Text { text, is_quoted } => field.push_text(text, *is_quoted, &mut room)?,
                Part::Expanded { expansion, is_quoted } => {
                    let value = self.expansion(expansion, io).await?;
                    field.push_text(&value, *is_quoted, &mut room)?;
                }
            }
        }
        self.machine.owe(field.text.len());
        Ok(field)
    }

    fn expansion<'a>(
        &'a mut self,
        expansion: &'a Expansion,
        io: &'a Io,
    ) -> BoxFuture<'a, Result<String, Stop>> {
        async move {
            let value = match expansion {
                Expansion::Variable(name) => self.parameter(name, io).await?,
                Expansion::Length(name) => self.parameter(name, io).await?.chars().count().to_string(),
                Expansion::Modified { name, operator, word } => {
                    self.modified(name, *operator, word, io).await?
                }
                Expansion::Printed(list) => self.printed(list, io).await?,
                Expansion::Arithmetic(word) => {
                    let text = self.text(word, io).await?;
                    self.arithmetic(&text, io).await?
                }
            };
            self.machine.pace.read(value.len())?;
            self.machine.owe(value.len());
            self.pay().await?;
            Ok(value)
        }
        .boxed()
    }

    async fn parameter(&mut self, name: &str, io: &Io) -> Result<String, Stop> {
        if let Some(value) = self.value(name)? {
            return Ok(value);
        }
        if self.options.rejects_unset {
            self.complain(io, format!("sh: {name}: parameter not set")).await?;
            return Err(Stop::Exit(2));
        }
        Ok(String::new())
    }

    /// Returns the value of a variable or parameter.
    fn value(&self, name: &str) -> Result<Option<String>, Stop> {
        if let Ok(number) = name.parse::<usize>() {
            let parameter = match number {
                0 => Some(&self.name),
                _ => self.parameters.get(number - 1),
            };
            return Ok(parameter.cloned());
        }
        Ok(match name {
            "?" => Some(self.status.to_string()),
            "#" => Some(self.parameters.len().to_string()),
            "@" | "*" => Some(self.parameters.join(" ")),
            "$" => Some("1".to_owned()),
            "!" | "-" => Some(String::new()),
            _ => self.get(name)?.map(str::to_owned),
        })
    }

    async fn modified(
        &mut self,
        name: &str,
        operator: Operator,
        word: &Word,
        io: &Io,
    ) -> Result<String, Stop> {
        let value = self.value(name)?;
        let set = |or_empty: bool| value.clone().filter(|value| !or_empty || !value.is_empty());
        match operator {
            Operator::Default { or_empty } => match set(or_empty) {
                Some(value) => Ok(value),
                None => self.text(word, io).await,
            },
            Operator::Assign { or_empty } => match set(or_empty) {
                Some(value) => Ok(value),
                None => {
                    let value = self.text(word, io).await?;
                    self.set(name, value.clone())?;
                    Ok(value)
                }
            },
            Operator::Alternative { or_empty } => match set(or_empty) {
                Some(_) => self.text(word, io).await,
                None => Ok(String::new()),
            },
            Operator::Require { or_empty } => match set(or_empty) {
                Some(value) => Ok(value),
                None => {
                    let why = self.text(word, io).await?;
                    let why = if why.is_empty() { "parameter not set" } else { &why };
                    self.complain(io, format!("sh: {name}: {why}")).await?;
                    Err(Stop::Exit(2))
                }
            },
            Operator::WithoutPrefix { is_longest } => {
                let (value, wanted) = (value.unwrap_or_default(), self.pattern(word, io).await?);
                self.machine.owe(pattern::steps(&wanted, &value));
                Ok(pattern::without_prefix(&value, &wanted, is_longest).to_owned())
            }
            Operator::WithoutSuffix { is_longest } => {
                let (value, wanted) = (value.unwrap_or_default(), self.pattern(word, io).await?);
                self.machine.owe(pattern::steps(&wanted, &value));
                Ok(pattern::without_suffix(&value, &wanted, is_longest).to_owned())
            }
        }
    }

    /// Returns the output of a list, without trailing newlines.
    async fn printed(&mut self, list: &List, io: &Io) -> Result<String, Stop> {
        let (stdout, buffer) = Output::buffer();
        let io = Io { stdout, ..io.clone() };
        self.enter_call()?;
        let done = self.subshell(list, &io).await;
        self.leave_call();
        self.status = done?;
        let printed = String::from_utf8_lossy(&buffer.lock()).into_owned();
        Ok(printed.trim_end_matches('\n').to_owned())
    }

    async fn arithmetic(&mut self, text: &str, io: &Io) -> Result<String, Stop> {
        let lookup = |name: &str| Ok(self.value(name)?.unwrap_or_default());
        match arithmetic::evaluate(text, &lookup)? {
            Some(value) => Ok(value.to_string()),
            None => {
                self.complain(io, "sh: arithmetic syntax error").await?;
                Err(Stop::Exit(2))
            }
        }
    }

    /// Returns the files that match a pattern, sorted.
    async fn files_that_match(&mut self, pattern: &str) -> Result<Vec<String>, Stop> {
        let mut found = vec![if pattern.starts_with('/') { "/".to_owned() } else { String::new() }];
        for segment in pattern.split('/').filter(|segment| !segment.is_empty()) {
            let mut next = Vec::new();
            for directory in &found {
                let path = path::normal(&self.directory, directory);
                if self.machine.manner == UnknownCommands::Certain && !self.machine.files.is_complete(&path) {
                    return Err(Stop::Unknown);
                }
                let names = self.machine.files.list(&path).unwrap_or_default();
                let work = names.iter().map(|name| FIELD_BYTES + pattern::steps(segment, name));
                self.machine.owe(path.len() + work.sum::<usize>());
                let is_meant = |name: &&String| {
                    (segment.starts_with('.') || !name.starts_with('.')) && pattern::matches(segment, name)
                };
                next.extend(names.iter().filter(is_meant).map(|name| joined(directory, name)));
                self.pay().await?;
            }
            found = next;
        }
        Ok(found)
    }
}

fn joined(directory: &str, name: &str) -> String {
    if directory.is_empty() || directory.ends_with('/') {
        return format!("{directory}{name}");
    }
    format!("{directory}/{name}")
}
