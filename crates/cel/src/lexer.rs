//! Lexer: splits text into tokens.

/// A token and where it starts and ends, as offsets in characters.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Word {
    pub(super) token: Token,
    pub(super) at: usize,
    pub(super) end: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Token {
    Ident(String),
    /// An identifier in backquotes.
    Quoted,
    Int(i64),
    Uint(u64),
    Double(f64),
    String(String),
    Bytes(Vec<u8>),
    Symbol(&'static str),
    End,
}

/// A syntax error and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mistake {
    pub(super) at: usize,
    pub(super) message: String,
}

const SYMBOLS: [&str; 24] = [
    "==", "!=", "<=", ">=", "&&", "||", "<", ">", "+", "-", "*", "/", "%", "!", "?", ":", ".", ",", "(", ")",
    "[", "]", "{", "}",
];

/// The maximum number of reported characters that start no token. Each report repeats its line, of up to 100,000
/// characters.
const MAX_UNRECOGNIZED: usize = 8;

/// The tokens of an expression, and the characters in between that start no token.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) words: Vec<Word>,
    pub(super) unrecognized: Vec<Mistake>,
}

pub(super) fn words(text: &str) -> Result<Words, Mistake> {
    let letters: Vec<char> = text.chars().collect();
    let mut lexer = Lexer { letters: &letters, at: 0, unrecognized: Vec::new() };
    let mut words = Vec::new();
    loop {
        let word = lexer.next()?;
        let is_end = word.token == Token::End;
        words.push(word);
        if is_end {
            return Ok(Words { words, unrecognized: lexer.unrecognized });
        }
    }
}

struct Lexer<'t> {
    letters: &'t [char],
    at: usize,
    unrecognized: Vec<Mistake>,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.letters.get(self.at + ahead).copied()
    }

    fn skip(&mut self) {
        loop {
            match self.peek(0) {
                Some(' ' | '\t' | '\n' | '\r' | '\u{c}') => self.at += 1,
                Some('/') if self.peek(1) == Some('/') => {
                    while self.peek(0).is_some_and(|letter| letter != '\n') {
                        self.at += 1;
                    }
                }
                Some(letter) if self.starts_no_token(letter) => self.skip_unrecognized(),
                _ => return,
            }
        }
    }

    /// Whether the next character starts no token: it belongs to none, or only to a token of two equal characters.
    fn starts_no_token(&self, letter: char) -> bool {
        match letter {
            '=' | '&' | '|' => self.peek(1) != Some(letter),
            '_' | '"' | '\'' | '`' => false,
            _ if letter.is_ascii_alphanumeric() => false,
            _ => !SYMBOLS.iter().any(|symbol| symbol.starts_with(letter)),
        }
    }

    /// Skips a character that starts no token, as v1.34's lexer does: if it could have started one, it is skipped
    /// together with the character that ruled this out.
    fn skip_unrecognized(&mut self) {
        let start = self.at;
        let length = if matches!(self.letters[start], '=' | '&' | '|') { 2 } else { 1 };
        self.at = self.letters.len().min(start + length);
        if self.unrecognized.len() < MAX_UNRECOGNIZED {
            self.unrecognized.push(unexpected(start, &self.letters[start..self.at]));
        }
    }

    fn next(&mut self) -> Result<Word, Mistake> {
        self.skip();
        let at = self.at;
        let Some(letter) = self.peek(0) else { return Ok(Word { token: Token::End, at, end: at }) };
        let token = match letter {
            '"' | '\'' => self.text(false, false)?,
            'r' | 'R' | 'b' | 'B' if self.starts_text() => self.prefixed_text()?,
            '`' => self.quoted()?,
            _ if letter.is_ascii_digit() => self.number()?,
            '.' if self.peek(1).is_some_and(|next| next.is_ascii_digit()) => self.number()?,
            _ if letter.is_ascii_alphabetic() || letter == '_' => self.ident(),
            _ => self.symbol()?,
        };
        Ok(Word { token, at, end: self.at })
    }

    /// Returns whether a quote follows one or two prefix letters of a string literal.
    fn starts_text(&self) -> bool {
        let is_quote = |letter: Option<char>| matches!(letter, Some('"' | '\''));
        let is_prefix = |letter: Option<char>| matches!(letter, Some('r' | 'R' | 'b' | 'B'));
        is_quote(self.peek(1)) || is_prefix(self.peek(1)) && is_quote(self.peek(2))
    }

    fn prefixed_text(&mut self) -> Result<Token, Mistake> {
        let (mut is_raw, mut is_bytes) = (false, false);
        while let Some(letter) = self.peek(0).filter(char::is_ascii_alphabetic) {
            is_raw |= letter.eq_ignore_ascii_case(&'r');
            is_bytes |= letter.eq_ignore_ascii_case(&'b');
            self.at += 1;
        }
        self.text(is_raw, is_bytes)
    }

    fn quoted(&mut self) -> Result<Token, Mistake> {
        let start = self.at;
        self.at += 1;
        while let Some(letter) = self.peek(0) {
            self.at += 1;
            if letter == '`' {
                return Ok(Token::Quoted);
            }
        }
        Err(unexpected(start, &['`']))
    }

    fn ident(&mut self) -> Token {
        let start = self.at;
        while self.peek(0).is_some_and(|letter| letter.is_ascii_alphanumeric() || letter == '_') {
            self.at += 1;
        }
        Token::Ident(self.letters[start..self.at].iter().collect())
    }

    fn symbol(&mut self) -> Result<Token, Mistake> {
        for symbol in SYMBOLS {
            let fits = symbol.chars().enumerate().all(|(ahead, letter)| self.peek(ahead) == Some(letter));
            if fits {
                self.at += symbol.len();
                return Ok(Token::Symbol(symbol));
            }
        }
        Err(unexpected(self.at, &self.letters[self.at..=self.at]))
    }

    fn number(&mut self) -> Result<Token, Mistake> {
        let start = self.at;
        let invalid = |text: &str| Mistake { at: start, message: format!("invalid int literal: {text}") };
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self.take(|letter| letter.is_ascii_hexdigit());
            if matches!(self.peek(0), Some('u' | 'U')) {
                self.at += 1;
                return u64::from_str_radix(&digits, 16).map(Token::Uint).map_err(|_| invalid(&digits));
            }
            return i64::from_str_radix(&digits, 16).map(Token::Int).map_err(|_| invalid(&digits));
        }
        let mut text = self.take(|letter| letter.is_ascii_digit());
        let mut is_double = false;
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|next| next.is_ascii_digit()) {
            is_double = true;
            self.at += 1;
            text.push('.');
            text.push_str(&self.take(|letter| letter.is_ascii_digit()));
        }
        if matches!(self.peek(0), Some('e' | 'E')) {
            is_double = true;
            self.at += 1;
            text.push('e');
            if let Some(sign) = self.peek(0).filter(|letter| matches!(letter, '+' | '-')) {
                text.push(sign);
                self.at += 1;
            }
            text.push_str(&self.take(|letter| letter.is_ascii_digit()));
        }
        if is_double {
            return text.parse().map(Token::Double).map_err(|_| invalid(&text));
        }
        if matches!(self.peek(0), Some('u' | 'U')) {
            self.at += 1;
            return text.parse().map(Token::Uint).map_err(|_| invalid(&text));
        }
        // The smallest integer is written with a sign, which is a separate token.
        match text.parse::<u64>() {
            Ok(number) if number == 1 << 63 => Ok(Token::Int(i64::MIN)),
            Ok(number) => i64::try_from(number).map(Token::Int).map_err(|_| invalid(&text)),
            Err(_) => Err(invalid(&text)),
        }
    }

    fn take(&mut self, is_part: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&is_part) {
            self.at += 1;
        }
        self.letters[start..self.at].iter().collect()
    }

    fn text(&mut self, is_raw: bool, is_bytes: bool) -> Result<Token, Mistake> {
        let start = self.at;
        let quote = self.letters[self.at];
        let is_long = self.peek(1) == Some(quote) && self.peek(2) == Some(quote);
        self.at += if is_long { 3 } else { 1 };
        let mut bytes = Vec::new();
        loop {
            let Some(letter) = self.peek(0) else { return Err(unexpected(start, &[quote])) };
            if letter == quote && (!is_long || self.peek(1) == Some(quote) && self.peek(2) == Some(quote)) {
                self.at += if is_long { 3 } else { 1 };
                break;
            }
            if letter == '\n' && !is_long {
                return Err(unexpected(start, &[quote]));
            }
            self.at += 1;
            match letter {
                '\\' if !is_raw => self.escape(&mut bytes, is_bytes)?,
                letter => push(&mut bytes, letter),
            }
        }
        Ok(match is_bytes {
            true => Token::Bytes(bytes),
            false => Token::String(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    fn escape(&mut self, bytes: &mut Vec<u8>, is_bytes: bool) -> Result<(), Mistake> {
        let at = self.at - 1;
        let invalid = || Mistake { at, message: "unable to unescape string".into() };
        let letter = self.peek(0).ok_or_else(invalid)?;
        self.at += 1;
        let plain = match letter {
            'a' => '\u{7}',
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'v' => '\u{b}',
            '\\' | '\'' | '"' | '`' | '?' => letter,
            'x' | 'X' => return self.coded(2, 16, bytes, is_bytes).ok_or_else(invalid),
            'u' => return self.coded(4, 16, bytes, false).ok_or_else(invalid),
            'U' => return self.coded(8, 16, bytes, false).ok_or_else(invalid),
            '0'..='3' => {
                self.at -= 1;
                return self.coded(3, 8, bytes, is_bytes).ok_or_else(invalid);
            }
            _ => return Err(invalid()),
        };
        push(bytes, plain);
        Ok(())
    }

    fn coded(&mut self, digits: usize, radix: u32, bytes: &mut Vec<u8>, as_byte: bool) -> Option<()> {
        let text: String = self.letters.get(self.at..self.at + digits)?.iter().collect();
        let code = u32::from_str_radix(&text, radix).ok()?;
        self.at += digits;
        match as_byte {
            true => bytes.push(u8::try_from(code).ok()?),
            false => push(bytes, char::from_u32(code)?),
        }
        Some(())
    }
}

fn push(bytes: &mut Vec<u8>, letter: char) {
    let mut buffer = [0; 4];
    bytes.extend_from_slice(letter.encode_utf8(&mut buffer).as_bytes());
}

fn unexpected(at: usize, letters: &[char]) -> Mistake {
    let letters: String = letters.iter().collect();
    Mistake { at, message: format!("Syntax error: token recognition error at: '{letters}'") }
}
