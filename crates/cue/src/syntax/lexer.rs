//! The lexer: text to tokens, with commas inserted at line breaks.
//!
//! Comments and attributes stay in the stream: the parser attaches them to declarations. An interpolated expression is
//! lexed together with its string and kept as tokens inside it.

use std::sync::Arc;

use super::literal;
use super::token::{Token, TokenKind};
use crate::error::{Error, ErrorKind, Position};
use crate::limits::Limits;

/// Operators, longest first.
const OPERATORS: &[&str] = &[
    "...", "&&", "||", "==", "!=", "=~", "!~", "<=", ">=", "+", "-", "*", "/", "&", "|", "<", ">", "=", ":",
    "?", "!", ".", "(", ")", "{", "}", "[", "]", "~",
];

/// Turns a source into tokens, ended by [`TokenKind::End`].
pub(crate) fn tokens(name: &Arc<str>, text: &str, limits: &Limits) -> Result<Vec<Token>, Error> {
    if text.len() > limits.source_bytes {
        let message = format!("the source has {} bytes, more than {}", text.len(), limits.source_bytes);
        return Err(Error::new(ErrorKind::Limit, message));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lexer = Lexer::new(name.clone(), text, limits.nesting);
    let mut tokens = Vec::new();
    loop {
        let token = lexer.next()?;
        let ends = token.kind == TokenKind::End;
        tokens.push(token);
        if ends {
            return Ok(tokens);
        }
    }
}

pub(crate) struct Lexer {
    file: Arc<str>,
    pub(super) chars: Vec<char>,
    pub(super) at: usize,
    line: u32,
    line_start: usize,
    /// Whether a line break would count as a comma here.
    wants_comma: bool,
    starts_line: bool,
    /// The number of enclosing strings with interpolations.
    pub(super) nesting: usize,
    max_nesting: usize,
}

impl Lexer {
    fn new(file: Arc<str>, text: &str, max_nesting: usize) -> Self {
        Self {
            file,
            chars: text.chars().collect(),
            at: 0,
            line: 1,
            line_start: 0,
            wants_comma: false,
            starts_line: true,
            nesting: 0,
            max_nesting,
        }
    }

    pub(super) fn position(&self) -> Position {
        Position::new(&self.file, self.line, (self.at - self.line_start) as u32 + 1)
    }

    pub(super) fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    pub(super) fn bump(&mut self) -> Option<char> {
        let letter = self.peek(0)?;
        self.at += 1;
        if letter == '\n' {
            self.line += 1;
            self.line_start = self.at;
        }
        Some(letter)
    }

    pub(super) fn starts_with(&self, text: &str) -> bool {
        text.chars().enumerate().all(|(ahead, letter)| self.peek(ahead) == Some(letter))
    }

    pub(super) fn skip(&mut self, count: usize) {
        for _ in 0..count {
            self.bump();
        }
    }

    pub(super) fn mistake(&self, position: &Position, message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Syntax, message).at(position)
    }

    /// Returns the next token.
    pub(super) fn next(&mut self) -> Result<Token, Error> {
        if let Some(comma) = self.blanks() {
            return Ok(comma);
        }
        let position = self.position();
        let starts_line = std::mem::take(&mut self.starts_line);
        let kind = self.kind(&position)?;
        if !matches!(kind, TokenKind::Comment(_)) {
            self.wants_comma = ends_a_line(&kind);
        }
        Ok(Token { kind, position, starts_line })
    }

    /// Skips blanks. Returns a comma if a line break counts as one.
    fn blanks(&mut self) -> Option<Token> {
        loop {
            let position = self.position();
            let ends_line = match self.peek(0) {
                Some('\n') | None => true,
                Some('/') => self.peek(1) == Some('/'),
                _ => false,
            };
            if ends_line && std::mem::take(&mut self.wants_comma) {
                return Some(Token { kind: TokenKind::Comma { auto: true }, position, starts_line: false });
            }
            match self.peek(0) {
                Some('\n') => {
                    self.bump();
                    self.starts_line = true;
                }
                Some(' ' | '\t' | '\r') => self.at += 1,
                _ => return None,
            }
        }
    }

    fn kind(&mut self, position: &Position) -> Result<TokenKind, Error> {
        let Some(letter) = self.peek(0) else { return Ok(TokenKind::End) };
        if self.starts_with("//") {
            return Ok(self.comment());
        }
        if self.starts_with("_|_") {
            self.skip(3);
            return Ok(TokenKind::Bottom);
        }
        match letter {
            ',' => {
                self.bump();
                Ok(TokenKind::Comma { auto: false })
            }
            '@' => self.attribute(position),
            '"' | '\'' => self.text(position),
            '#' if self.opens_raw_text() => self.text(position),
            '0'..='9' => literal::number(self, position),
            '.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => literal::number(self, position),
            _ if is_letter(letter) || letter == '#' => self.ident(position),
            _ => self.operator(position),
        }
    }

    fn opens_raw_text(&self) -> bool {
        let hashes = (0..).take_while(|ahead| self.peek(*ahead) == Some('#')).count();
        matches!(self.peek(hashes), Some('"' | '\''))
    }

    fn text(&mut self, position: &Position) -> Result<TokenKind, Error> {
        if self.nesting >= self.max_nesting {
            let message = format!("strings are nested more than {} deep", self.max_nesting);
            return Err(Error::new(ErrorKind::Limit, message).at(position));
        }
        self.nesting += 1;
        let text = literal::text(self, position);
        self.nesting -= 1;
        text
    }

    fn comment(&mut self) -> TokenKind {
        self.skip(2);
        let mut text = String::new();
        while let Some(letter) = self.peek(0).filter(|letter| *letter != '\n') {
            text.push(letter);
            self.at += 1;
        }
        TokenKind::Comment(text.trim_end_matches('\r').to_owned())
    }

    fn ident(&mut self, position: &Position) -> Result<TokenKind, Error> {
        let mut name = String::new();
        if self.starts_with("_#") {
            name.push_str("_#");
            self.at += 2;
        } else if self.peek(0) == Some('#') {
            name.push('#');
            self.at += 1;
        }
        let start = name.len();
        while let Some(letter) =
            self.peek(0).filter(|c| is_letter(*c) || (name.len() > start && c.is_numeric()))
        {
            name.push(letter);
            self.at += 1;
        }
        // `_1` is a name, and so is `__x`.
        if name == "#" || name == "_#" {
            return Err(self.mistake(position, format!("`{name}` needs a name after it")));
        }
        Ok(TokenKind::Ident(name))
    }

    fn operator(&mut self, position: &Position) -> Result<TokenKind, Error> {
        for operator in OPERATORS {
            if self.starts_with(operator) {
                self.at += operator.len();
                return Ok(TokenKind::Op(operator));
            }
        }
        let letter = self.peek(0).unwrap_or_default();
        Err(self.mistake(position, format!("unexpected character {letter:?}")))
    }

    /// Reads `@name(body)`. The body may contain strings and balanced brackets.
    fn attribute(&mut self, position: &Position) -> Result<TokenKind, Error> {
        self.bump();
        let mut name = String::new();
        while let Some(letter) = self.peek(0).filter(|c| is_letter(*c) || c.is_numeric()) {
            name.push(letter);
            self.at += 1;
        }
        if name.is_empty() || self.peek(0) != Some('(') {
            return Err(self.mistake(position, "an attribute has the form @name(body)"));
        }
        self.bump();
        let start = self.at;
        let mut open: Vec<char> = vec![')'];
        while let Some(closing) = open.last().copied() {
            let unclosed = || self.mistake(position, format!("the attribute @{name} is not closed"));
            let letter = self.peek(0).ok_or_else(unclosed)?;
            match letter {
                '"' | '\'' => {
                    let place = self.position();
                    self.text(&place)?;
                    continue;
                }
                '(' => open.push(')'),
                '[' => open.push(']'),
                '{' => open.push('}'),
                letter if letter == closing => {
                    open.pop();
                }
                _ => {}
            }
            self.bump();
        }
        let body = self.chars[start..self.at - 1].iter().collect();
        Ok(TokenKind::Attribute(name, body))
    }

    /// Reads the tokens of an interpolated expression up to its closing parenthesis.
    pub(super) fn interpolated(&mut self, opened: &Position) -> Result<Vec<Token>, Error> {
        let (wanted, started) = (self.wants_comma, self.starts_line);
        self.wants_comma = false;
        let mut tokens = Vec::new();
        let mut depth = 0usize;
        loop {
            let token = self.next()?;
            match &token.kind {
                TokenKind::End => return Err(self.mistake(opened, "the interpolation `\\(` is not closed")),
                TokenKind::Op("(") => depth += 1,
                TokenKind::Op(")") if depth == 0 => break,
                TokenKind::Op(")") => depth -= 1,
                // Line breaks are ignored in parentheses.
                TokenKind::Comma { auto: true } if depth == 0 => continue,
                _ => {}
            }
            tokens.push(token);
        }
        tokens.push(Token { kind: TokenKind::End, position: self.position(), starts_line: false });
        (self.wants_comma, self.starts_line) = (wanted, started);
        Ok(tokens)
    }
}

pub(crate) fn is_letter(letter: char) -> bool {
    letter == '_' || letter == '$' || letter.is_alphabetic()
}

/// Returns whether a line break after this token counts as a comma.
fn ends_a_line(kind: &TokenKind) -> bool {
    match kind {
        TokenKind::Ident(_)
        | TokenKind::Number(_)
        | TokenKind::Text { .. }
        | TokenKind::Bottom
        | TokenKind::Attribute(..) => true,
        TokenKind::Op(op) => matches!(*op, ")" | "]" | "}" | "?" | "..."),
        _ => false,
    }
}
