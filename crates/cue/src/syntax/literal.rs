//! Literals: numbers with bases, separators and multipliers; strings and byte sequences in their eight forms.

use super::lexer::Lexer;
use super::token::{TextPart, TokenKind};
use crate::error::{Error, Position};
use crate::number::Number;

/// Multipliers of numbers: `1K` is 1000, `1Ki` is 1024.
const MULTIPLIERS: &[(&str, i128)] = &[
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
    ("Pi", 1 << 50),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("P", 1_000_000_000_000_000),
];

/// Reads a number.
pub(super) fn number(lexer: &mut Lexer, position: &Position) -> Result<TokenKind, Error> {
    for (prefix, base) in [("0x", 16), ("0X", 16), ("0o", 8), ("0b", 2)] {
        if lexer.starts_with(prefix) {
            lexer.skip(2);
            let digits = digits(lexer, |letter| letter.is_digit(base));
            let value = i128::from_str_radix(&digits, base).ok();
            return value
                .map(|value| TokenKind::Number(Number::int(value)))
                .ok_or_else(|| too_large(lexer, position));
        }
    }
    let mut text = digits(lexer, |letter| letter.is_ascii_digit());
    let mut is_decimal = false;
    if lexer.peek(0) == Some('.') && lexer.peek(1) != Some('.') {
        is_decimal = true;
        lexer.bump();
        text.push('.');
        text.push_str(&digits(lexer, |letter| letter.is_ascii_digit()));
    }
    if let Some(multiplier) = multiplier(lexer) {
        return multiplied(lexer, position, &text, multiplier);
    }
    is_decimal |= exponent(lexer, &mut text);
    let leading_zero = text.len() > 1 && text.starts_with('0') && text.as_bytes()[1].is_ascii_digit();
    if !is_decimal && leading_zero {
        return Err(lexer.mistake(position, "a number does not start with 0; octal numbers start with 0o"));
    }
    Number::parse_decimal(&text).map(TokenKind::Number).ok_or_else(|| too_large(lexer, position))
}

fn too_large(lexer: &Lexer, position: &Position) -> Error {
    lexer.mistake(position, "not a number that fits: integers have up to 127 bits, exponents up to 4096")
}

fn digits(lexer: &mut Lexer, accepts: impl Fn(char) -> bool) -> String {
    let mut text = String::new();
    while let Some(letter) = lexer.peek(0).filter(|letter| accepts(*letter) || *letter == '_') {
        if letter != '_' {
            text.push(letter);
        }
        lexer.bump();
    }
    text
}

fn exponent(lexer: &mut Lexer, text: &mut String) -> bool {
    let signed = usize::from(matches!(lexer.peek(1), Some('+' | '-')));
    let starts = matches!(lexer.peek(0), Some('e' | 'E'));
    if !starts || !lexer.peek(1 + signed).is_some_and(|digit| digit.is_ascii_digit()) {
        return false;
    }
    for _ in 0..=signed {
        text.extend(lexer.bump());
    }
    text.push_str(&digits(lexer, |letter| letter.is_ascii_digit()));
    true
}

fn multiplier(lexer: &mut Lexer) -> Option<i128> {
    let (text, factor) = MULTIPLIERS.iter().find(|(text, _)| lexer.starts_with(text))?;
    lexer.skip(text.len());
    Some(*factor)
}

fn multiplied(lexer: &Lexer, position: &Position, text: &str, factor: i128) -> Result<TokenKind, Error> {
    let text = if text.ends_with('.') { format!("{text}0") } else { text.to_owned() };
    let product = Number::parse_decimal(&text).and_then(|number| number.multiply(Number::int(factor)).ok());
    let whole = product.and_then(|product| product.as_i128());
    whole
        .map(|value| TokenKind::Number(Number::int(value)))
        .ok_or_else(|| lexer.mistake(position, "a number with a multiplier must be an integer"))
}

/// The delimiters of a string.
struct Quotes {
    hashes: usize,
    quote: char,
    multiline: bool,
}

impl Quotes {
    fn read(lexer: &mut Lexer) -> Self {
        let mut hashes = 0;
        while lexer.peek(0) == Some('#') {
            lexer.bump();
            hashes += 1;
        }
        let quote = lexer.bump().unwrap_or('"');
        let multiline = lexer.peek(0) == Some(quote) && lexer.peek(1) == Some(quote);
        if multiline {
            lexer.skip(2);
        }
        Self { hashes, quote, multiline }
    }

    fn closes(&self, lexer: &Lexer) -> bool {
        let quotes = if self.multiline { 3 } else { 1 };
        let quoted = (0..quotes).all(|ahead| lexer.peek(ahead) == Some(self.quote));
        quoted && (0..self.hashes).all(|ahead| lexer.peek(quotes + ahead) == Some('#'))
    }

    fn width(&self) -> usize {
        self.hashes + if self.multiline { 3 } else { 1 }
    }

    fn escapes(&self, lexer: &Lexer) -> bool {
        lexer.peek(0) == Some('\\') && (0..self.hashes).all(|ahead| lexer.peek(1 + ahead) == Some('#'))
    }
}

/// Reads a string or byte sequence.
pub(super) fn text(lexer: &mut Lexer, position: &Position) -> Result<TokenKind, Error> {
    let quotes = Quotes::read(lexer);
    let bytes = quotes.quote == '\'';
    if quotes.multiline {
        if lexer.peek(0) == Some('\r') {
            lexer.bump();
        }
        if lexer.bump() != Some('\n') {
            return Err(
                lexer.mistake(position, "a multiline string starts with a line break after its quotes")
            );
        }
    }
    let indent = if quotes.multiline { indentation(lexer, &quotes) } else { String::new() };
    let mut reader = Reader { parts: Vec::new(), literal: Vec::new() };
    if quotes.multiline && lexer_at_close(lexer, &quotes, &indent) {
        return Ok(TokenKind::Text { parts: reader.finish(), bytes });
    }
    strip(lexer, position, &indent)?;
    loop {
        if quotes.closes(lexer) {
            lexer.skip(quotes.width());
            break;
        }
        if quotes.escapes(lexer) {
            reader.escape(lexer, &quotes, position, bytes)?;
            continue;
        }
        let letter = lexer.bump();
        match letter {
            None => return Err(lexer.mistake(position, "the string is not closed")),
            Some('\n') if !quotes.multiline => {
                return Err(lexer.mistake(position, "the string is not closed on its line"));
            }
            Some('\r') if quotes.multiline && lexer.peek(0) == Some('\n') => {}
            Some('\n') => {
                if lexer_at_close(lexer, &quotes, &indent) {
                    break;
                }
                reader.literal.push(b'\n');
                strip(lexer, position, &indent)?;
            }
            Some(letter) => reader.push(letter),
        }
    }
    Ok(TokenKind::Text { parts: reader.finish(), bytes })
}

/// Consumes the indentation and the closing quotes if they are next.
fn lexer_at_close(lexer: &mut Lexer, quotes: &Quotes, indent: &str) -> bool {
    let start = lexer.at;
    if !lexer.starts_with(indent) {
        return false;
    }
    lexer.at += indent.chars().count();
    if quotes.closes(lexer) {
        lexer.skip(quotes.width());
        return true;
    }
    lexer.at = start;
    false
}

/// Returns the blanks before the closing quotes, which all lines share.
fn indentation(lexer: &Lexer, quotes: &Quotes) -> String {
    let mut at = lexer.at;
    loop {
        let line_start = at;
        while matches!(lexer.chars.get(at), Some(' ' | '\t')) {
            at += 1;
        }
        let closes = (0..3).all(|ahead| lexer.chars.get(at + ahead) == Some(&quotes.quote))
            && (0..quotes.hashes).all(|ahead| lexer.chars.get(at + 3 + ahead) == Some(&'#'));
        if closes {
            return lexer.chars[line_start..at].iter().collect();
        }
        while lexer.chars.get(at).is_some_and(|letter| *letter != '\n') {
            at += 1;
        }
        if at >= lexer.chars.len() {
            return String::new();
        }
        at += 1;
    }
}

/// Removes the shared indentation at the start of a line.
fn strip(lexer: &mut Lexer, position: &Position, indent: &str) -> Result<(), Error> {
    if lexer.starts_with(indent) {
        lexer.at += indent.chars().count();
        return Ok(());
    }
    let blank =
        (0..).map_while(|ahead| lexer.peek(ahead)).find(|letter| !matches!(letter, ' ' | '\t' | '\r'));
    if blank == Some('\n') || blank.is_none() {
        while matches!(lexer.peek(0), Some(' ' | '\t')) {
            lexer.bump();
        }
        return Ok(());
    }
    let place = lexer.position();
    let message = "this line of a multiline string is indented less than its closing quotes";
    Err(lexer.mistake(&place, message).at(position))
}

/// Collects the parts of a string.
struct Reader {
    parts: Vec<TextPart>,
    literal: Vec<u8>,
}

impl Reader {
    fn push(&mut self, letter: char) {
        self.literal.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
    }

    fn finish(mut self) -> Vec<TextPart> {
        if !self.literal.is_empty() || self.parts.is_empty() {
            self.parts.push(TextPart::Literal(self.literal));
        }
        self.parts
    }

    /// Reads an escape sequence or an interpolation.
    fn escape(
        &mut self,
        lexer: &mut Lexer,
        quotes: &Quotes,
        at: &Position,
        bytes: bool,
    ) -> Result<(), Error> {
        let place = lexer.position();
        lexer.skip(1 + quotes.hashes);
        let letter = lexer.bump().ok_or_else(|| lexer.mistake(at, "the string is not closed"))?;
        match letter {
            '(' => {
                if !self.literal.is_empty() {
                    self.parts.push(TextPart::Literal(std::mem::take(&mut self.literal)));
                }
                let tokens = lexer.interpolated(&place)?;
                self.parts.push(TextPart::Expression(tokens));
            }
            'a' => self.literal.push(7),
            'b' => self.literal.push(8),
            'f' => self.literal.push(12),
            'n' => self.literal.push(b'\n'),
            'r' => self.literal.push(b'\r'),
            't' => self.literal.push(b'\t'),
            'v' => self.literal.push(11),
            '/' | '\\' | '"' | '\'' => self.push(letter),
            'u' => self.unicode(lexer, &place, 4)?,
            'U' => self.unicode(lexer, &place, 8)?,
            'x' if bytes => self.code(lexer, &place, 2, 16)?,
            '0'..='7' if bytes => {
                lexer.at -= 1;
                self.code(lexer, &place, 3, 8)?;
            }
            _ => return Err(lexer.mistake(&place, format!("unknown escape sequence `\\{letter}`"))),
        }
        Ok(())
    }

    fn unicode(&mut self, lexer: &mut Lexer, place: &Position, digits: usize) -> Result<(), Error> {
        let mut code = take_code(lexer, digits, 16);
        // JSON writes characters outside the basic plane as two surrogates.
        if let Some(high @ 0xd800..=0xdbff) = code.filter(|_| digits == 4 && lexer.starts_with("\\u")) {
            lexer.skip(2);
            code = take_code(lexer, 4, 16)
                .filter(|low| (0xdc00..=0xdfff).contains(low))
                .map(|low| 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
        }
        let letter = code.and_then(char::from_u32);
        let letter = letter.ok_or_else(|| lexer.mistake(place, "not the code of a character"))?;
        self.push(letter);
        Ok(())
    }

    fn code(&mut self, lexer: &mut Lexer, place: &Position, digits: usize, base: u32) -> Result<(), Error> {
        let code = take_code(lexer, digits, base).and_then(|code| u8::try_from(code).ok());
        let code = code.ok_or_else(|| lexer.mistake(place, "not the code of a byte"))?;
        self.literal.push(code);
        Ok(())
    }
}

fn take_code(lexer: &mut Lexer, digits: usize, base: u32) -> Option<u32> {
    let mut code = 0u32;
    for _ in 0..digits {
        code = code.checked_mul(base)?.checked_add(lexer.peek(0)?.to_digit(base)?)?;
        lexer.bump();
    }
    Some(code)
}
