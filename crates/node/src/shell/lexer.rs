//! Splits a script into tokens. Words come with their quotes removed and their expansions parsed.

use super::parser::parse_nested;
use super::{Expansion, MAX_DEPTH, Operator, Part, SyntaxError, Word};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(Word),
    Newline,
    /// `;`
    End,
    /// `;;`
    EndOfArm,
    And,
    Or,
    Pipe,
    Open,
    Close,
    Redirect {
        stream: u8,
        kind: Kind,
    },
    /// A redirection to where another stream goes.
    Same {
        stream: u8,
        other: u8,
    },
    HereDocument(Word),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    Append,
}

/// A here-document whose text follows after the line.
struct Pending {
    /// The index of its token.
    token: usize,
    delimiter: String,
    is_literal: bool,
    strips_tabs: bool,
}

pub(super) struct Lexer<'a> {
    rest: &'a str,
    depth: usize,
    tokens: Vec<Token>,
    pending: Vec<Pending>,
}

type Parsed<T> = Result<T, SyntaxError>;

/// Returns the tokens of a script.
pub(super) fn tokens(script: &str, depth: usize) -> Parsed<Vec<Token>> {
    if depth > MAX_DEPTH {
        return Err(SyntaxError::Unsupported("so many levels"));
    }
    let mut lexer = Lexer { rest: script, depth, tokens: Vec::new(), pending: Vec::new() };
    while let Some(next) = lexer.rest.chars().next() {
        lexer.token(next)?;
    }
    match lexer.pending.is_empty() {
        true => Ok(lexer.tokens),
        false => Err(SyntaxError::Incomplete),
    }
}

impl<'a> Lexer<'a> {
    fn token(&mut self, next: char) -> Parsed<()> {
        match next {
            '\n' => {
                self.take(1, Token::Newline);
                self.here_documents()?;
            }
            ' ' | '\t' | '\r' => self.skip(1),
            '#' => self.rest = self.rest.find('\n').map_or("", |end| &self.rest[end..]),
            '\\' if self.rest.starts_with("\\\n") => self.skip(2),
            ';' if self.rest.starts_with(";;") => self.take(2, Token::EndOfArm),
            ';' => self.take(1, Token::End),
            '&' if self.rest.starts_with("&&") => self.take(2, Token::And),
            '&' => return Err(SyntaxError::Unsupported("background jobs")),
            '|' if self.rest.starts_with("||") => self.take(2, Token::Or),
            '|' => self.take(1, Token::Pipe),
            '(' => self.take(1, Token::Open),
            ')' => self.take(1, Token::Close),
            '<' | '>' => self.redirect(None)?,
            '0'..='9' if self.rest[1..].starts_with(['<', '>']) => {
                let stream = next as u8 - b'0';
                self.skip(1);
                self.redirect(Some(stream))?;
            }
            _ => {
                let word = self.word(is_end_of_word)?;
                self.tokens.push(Token::Word(word));
            }
        }
        Ok(())
    }

    fn skip(&mut self, length: usize) {
        self.rest = &self.rest[length..];
    }

    fn take(&mut self, length: usize, token: Token) {
        self.skip(length);
        self.tokens.push(token);
    }

    fn redirect(&mut self, stream: Option<u8>) -> Parsed<()> {
        if stream.is_some_and(|stream| stream > 2) {
            return Err(SyntaxError::Unsupported("other streams than 0, 1 and 2"));
        }
        let (written, kind) =
            [(">>", Kind::Append), (">|", Kind::Write), (">", Kind::Write), ("<", Kind::Read)]
                .into_iter()
                .find(|(written, _)| self.rest.starts_with(written))
                .unwrap_or(("<", Kind::Read));
        if self.rest.starts_with("<<<") || self.rest.starts_with("<>") || self.rest.starts_with("<&") {
            return Err(SyntaxError::Unsupported("this redirection"));
        }
        if self.rest.starts_with("<<") {
            return self.here_document();
        }
        let stream = stream.unwrap_or(u8::from(kind != Kind::Read));
        self.skip(written.len());
        match self.rest.strip_prefix('&') {
            Some(rest) if kind == Kind::Write => match rest.bytes().next() {
                Some(other @ b'1'..=b'2') => self.take(2, Token::Same { stream, other: other - b'0' }),
                _ => return Err(SyntaxError::Unsupported("this redirection")),
            },
            _ => self.tokens.push(Token::Redirect { stream, kind }),
        }
        Ok(())
    }

    fn here_document(&mut self) -> Parsed<()> {
        self.skip(2);
        let strips_tabs = self.rest.starts_with('-');
        self.rest = self.rest.strip_prefix('-').unwrap_or(self.rest).trim_start_matches([' ', '\t']);
        let delimiter = self.word(is_end_of_word)?;
        let text = delimiter.parts.iter().map(|part| match part {
            Part::Text { text, .. } => Ok(text.as_str()),
            Part::Expanded { .. } => Err(SyntaxError::Unsupported("this here-document")),
        });
        let text: String = text.collect::<Parsed<_>>()?;
        let (token, is_literal) = (self.tokens.len(), delimiter.has_quotes);
        self.pending.push(Pending { token, delimiter: text, is_literal, strips_tabs });
        self.tokens.push(Token::HereDocument(Word::default()));
        Ok(())
    }

    /// Reads the here-documents that begin after a newline.
    fn here_documents(&mut self) -> Parsed<()> {
        for pending in std::mem::take(&mut self.pending) {
            let mut text = String::new();
            loop {
                let (line, rest) = self.rest.split_once('\n').unwrap_or((self.rest, ""));
                if line.is_empty() && rest.is_empty() {
                    return Err(SyntaxError::Incomplete);
                }
                self.rest = rest;
                let line = if pending.strips_tabs { line.trim_start_matches('\t') } else { line };
                if line == pending.delimiter {
                    break;
                }
                text.push_str(line);
                text.push('\n');
            }
            let word = match pending.is_literal {
                true => Word::literal(&text),
                false => quoted_word(&text, self.depth)?,
            };
            self.tokens[pending.token] = Token::HereDocument(word);
        }
        Ok(())
    }

    /// Reads a word up to a character that ends it.
    fn word(&mut self, ends: fn(char) -> bool) -> Parsed<Word> {
        let mut word = Builder::default();
        while let Some(next) = self.rest.chars().next().filter(|next| !ends(*next)) {
            match next {
                '\'' => {
                    let (quoted, rest) = self.rest[1..].split_once('\'').ok_or(SyntaxError::Incomplete)?;
                    word.text(quoted, true);
                    self.rest = rest;
                }
                '"' => {
                    self.skip(1);
                    self.double_quoted(&mut word)?;
                }
                '\\' if self.rest.starts_with("\\\n") => self.skip(2),
                '\\' => {
                    let escaped = self.rest.chars().nth(1).ok_or(SyntaxError::Incomplete)?;
                    word.character(escaped, true);
                    self.skip(1 + escaped.len_utf8());
                }
                '$' | '`' => self.expansion(&mut word, false)?,
                _ => {
                    word.character(next, false);
                    self.skip(next.len_utf8());
                }
            }
        }
        Ok(word.finish())
    }

    fn double_quoted(&mut self, word: &mut Builder) -> Parsed<()> {
        word.text("", true);
        loop {
            match self.rest.chars().next().ok_or(SyntaxError::Incomplete)? {
                '"' => {
                    self.skip(1);
                    return Ok(());
                }
                next => self.within_quotes(next, word)?,
            }
        }
    }

    /// Reads a character, an escape or an expansion inside double quotes.
    fn within_quotes(&mut self, next: char, word: &mut Builder) -> Parsed<()> {
        match next {
            '\\' if self.rest[1..].starts_with(['"', '\\', '$', '`']) => {
                word.text(&self.rest[1..2], true);
                self.skip(2);
            }
            '\\' if self.rest.starts_with("\\\n") => self.skip(2),
            '$' | '`' => self.expansion(word, true)?,
            next => {
                word.character(next, true);
                self.skip(next.len_utf8());
            }
        }
        Ok(())
    }

    /// Reads an expansion that starts with a dollar sign or a backquote.
    fn expansion(&mut self, word: &mut Builder, is_quoted: bool) -> Parsed<()> {
        let (expansion, rest) = if let Some(inside) = self.rest.strip_prefix('`') {
            let (inside, rest) = backquoted(inside)?;
            (Expansion::Printed(parse_nested(&inside, self.depth + 1)?), rest)
        } else if let Some(inside) = self.rest.strip_prefix("$((") {
            let (inside, rest) = balanced(inside, '(', ')')?;
            let rest = rest.strip_prefix(')').ok_or(SyntaxError::Unsupported("this expansion"))?;
            (Expansion::Arithmetic(quoted_word(inside, self.depth + 1)?), rest)
        } else if let Some(inside) = self.rest.strip_prefix("$(") {
            let (inside, rest) = balanced(inside, '(', ')')?;
            (Expansion::Printed(parse_nested(inside, self.depth + 1)?), rest)
        } else if let Some(inside) = self.rest.strip_prefix("${") {
            let (inside, rest) = balanced(inside, '{', '}')?;
            (braced(inside, self.depth + 1)?, rest)
        } else {
            let after = &self.rest[1..];
            let length = parameter_length(after);
            if length == 0 {
                word.character('$', is_quoted);
                self.skip(1);
                return Ok(());
            }
            (Expansion::Variable(after[..length].to_owned()), &after[length..])
        };
        word.expanded(expansion, is_quoted);
        self.rest = rest;
        Ok(())
    }
}

fn is_end_of_word(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')')
}

pub(super) fn is_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Returns the length of the name of a variable or parameter at the start of a text.
fn parameter_length(text: &str) -> usize {
    match text.bytes().next() {
        Some(b'?' | b'#' | b'@' | b'*' | b'$' | b'!' | b'-' | b'0'..=b'9') => 1,
        _ => text.find(|c: char| !is_of_name(c)).unwrap_or(text.len()),
    }
}

/// Reads a text in which only expansions are special.
fn quoted_word(text: &str, depth: usize) -> Parsed<Word> {
    if depth > MAX_DEPTH {
        return Err(SyntaxError::Unsupported("so many levels"));
    }
    let mut lexer = Lexer { rest: text, depth, tokens: Vec::new(), pending: Vec::new() };
    let mut word = Builder::default();
    word.text("", true);
    while let Some(next) = lexer.rest.chars().next() {
        lexer.within_quotes(next, &mut word)?;
    }
    Ok(word.finish())
}

/// Reads what is inside `${}`.
fn braced(inside: &str, depth: usize) -> Parsed<Expansion> {
    let is_name = |name: &str| !name.is_empty() && parameter_length(name) == name.len();
    if let Some(name) = inside.strip_prefix('#').filter(|name| is_name(name)) {
        return Ok(Expansion::Length(name.to_owned()));
    }
    let (name, rest) = inside.split_at(parameter_length(inside));
    if name.is_empty() {
        return Err(SyntaxError::Unsupported("this expansion"));
    }
    if rest.is_empty() {
        return Ok(Expansion::Variable(name.to_owned()));
    }
    let (operator, rest) = operator(rest).ok_or(SyntaxError::Unsupported("this expansion"))?;
    if depth > MAX_DEPTH {
        return Err(SyntaxError::Unsupported("so many levels"));
    }
    let word = Lexer { rest, depth, tokens: Vec::new(), pending: Vec::new() }.word(|_| false)?;
    Ok(Expansion::Modified { name: name.to_owned(), operator, word })
}

fn operator(text: &str) -> Option<(Operator, &str)> {
    let operators = [
        (":-", Operator::Default { or_empty: true }),
        ("-", Operator::Default { or_empty: false }),
        (":=", Operator::Assign { or_empty: true }),
        ("=", Operator::Assign { or_empty: false }),
        (":+", Operator::Alternative { or_empty: true }),
        ("+", Operator::Alternative { or_empty: false }),
        (":?", Operator::Require { or_empty: true }),
        ("?", Operator::Require { or_empty: false }),
        ("##", Operator::WithoutPrefix { is_longest: true }),
        ("#", Operator::WithoutPrefix { is_longest: false }),
        ("%%", Operator::WithoutSuffix { is_longest: true }),
        ("%", Operator::WithoutSuffix { is_longest: false }),
    ];
    operators.into_iter().find_map(|(written, operator)| Some((operator, text.strip_prefix(written)?)))
}

/// Splits a text at the character that closes what was opened before it. Quoted characters do not count.
fn balanced(text: &str, open: char, close: char) -> Parsed<(&str, &str)> {
    let (mut level, mut quote) = (1, None);
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match (c, quote) {
            ('\\', None | Some('"')) => _ = characters.next(),
            ('\'', Some('\'')) | ('"', Some('"')) => quote = None,
            (_, Some('\'')) => {}
            ('"', None) => quote = Some(c),
            // An apostrophe inside of `${}` and `$(())` is rare, and a quote inside of `$()` is not.
            ('\'', None) if close == ')' => quote = Some(c),
            _ if c == open => level += 1,
            _ if c == close => {
                level -= 1;
                if level == 0 {
                    return Ok((&text[..at], &text[at + c.len_utf8()..]));
                }
            }
            _ => {}
        }
    }
    Err(SyntaxError::Incomplete)
}

/// Splits a text at the closing backquote, and unescapes what is before it.
fn backquoted(text: &str) -> Parsed<(String, &str)> {
    let mut inside = String::new();
    let mut characters = text.char_indices();
    while let Some((at, c)) = characters.next() {
        match c {
            '`' => return Ok((inside, &text[at + 1..])),
            '\\' => match characters.next() {
                Some((_, escaped @ ('`' | '\\' | '$'))) => inside.push(escaped),
                Some((_, other)) => inside.extend(['\\', other]),
                None => return Err(SyntaxError::Incomplete),
            },
            _ => inside.push(c),
        }
    }
    Err(SyntaxError::Incomplete)
}

/// A word under construction. Neighbouring text with the same quotes is one part.
#[derive(Default)]
struct Builder(Word);

impl Builder {
    fn text(&mut self, text: &str, is_quoted: bool) {
        self.0.has_quotes |= is_quoted;
        match self.0.parts.last_mut() {
            Some(Part::Text { text: last, is_quoted: quoted }) if *quoted == is_quoted => last.push_str(text),
            _ if text.is_empty() => {}
            _ => self.0.parts.push(Part::Text { text: text.to_owned(), is_quoted }),
        }
    }

    fn character(&mut self, c: char, is_quoted: bool) {
        self.text(c.encode_utf8(&mut [0; 4]), is_quoted);
    }

    fn expanded(&mut self, expansion: Expansion, is_quoted: bool) {
        self.0.parts.push(Part::Expanded { expansion, is_quoted });
    }

    fn finish(self) -> Word {
        self.0
    }
}
