//! Finds the syntax error in a JSON text, with v1.34's message. Only used for texts that are known or suspected to be
//! invalid.

/// Maximum nesting of a document in v1.34.
const MAX_DEPTH: usize = 10_000;

/// Checks that a text is JSON and not nested too deep; fails with the first error.
pub(crate) fn check(text: &[u8]) -> Result<(), String> {
    let mut scanner = Scanner { text, at: 0 };
    let mut open: Vec<u8> = Vec::new();
    scanner.value(&mut open)?;
    while let Some(&bracket) = open.last() {
        scanner.space();
        let after = if bracket == b'{' { "after object key:value pair" } else { "after array element" };
        match (scanner.next()?, bracket) {
            (b',', b'{') => {
                scanner.space();
                scanner.key()?;
                scanner.value(&mut open)?;
            }
            (b',', _) => scanner.value(&mut open)?,
            (b'}', b'{') | (b']', b'[') => _ = open.pop(),
            (other, _) => return Err(unexpected(other, after)),
        }
    }
    scanner.space();
    match scanner.next() {
        Ok(other) => Err(unexpected(other, "after top-level value")),
        Err(_) => Ok(()),
    }
}

/// Whether a text has so many brackets that it may be nested too deep.
pub(crate) fn may_be_too_deep(text: &[u8]) -> bool {
    text.len() > MAX_DEPTH && text.iter().filter(|byte| matches!(byte, b'[' | b'{')).count() > MAX_DEPTH
}

/// Returns the numbers of a JSON text that are written with a fraction or an exponent.
pub(super) fn fractions(text: &[u8]) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            let (first, after) = rest.split_first()?;
            match first {
                b'"' => rest = after_string(after),
                b'-' | b'0'..=b'9' => {
                    let is_part = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                    let end = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
                    let (number, after) = rest.split_at(end);
                    rest = after;
                    let number = std::str::from_utf8(number).unwrap_or_default();
                    if number.contains(['.', 'e', 'E']) {
                        return Some(number);
                    }
                }
                _ => rest = after,
            }
        }
    })
}

/// Returns the rest of the text after a string whose opening quote has been read.
fn after_string(mut text: &[u8]) -> &[u8] {
    loop {
        match text {
            [b'"', rest @ ..] => return rest,
            [b'\\', _, rest @ ..] | [_, rest @ ..] => text = rest,
            [] => return text,
        }
    }
}

struct Scanner<'a> {
    text: &'a [u8],
    at: usize,
}

impl Scanner<'_> {
    fn next(&mut self) -> Result<u8, String> {
        let byte = self.text.get(self.at).copied().ok_or("unexpected end of JSON input")?;
        self.at += 1;
        Ok(byte)
    }

    fn space(&mut self) {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    /// Scans a whole scalar; an object or a list only until its first value follows or it is closed.
    fn value(&mut self, open: &mut Vec<u8>) -> Result<(), String> {
        loop {
            self.space();
            match self.next()? {
                bracket @ (b'{' | b'[') => {
                    open.push(bracket);
                    if open.len() > MAX_DEPTH {
                        return Err(unexpected(bracket, "exceeded max depth"));
                    }
                    self.space();
                    let closing = if bracket == b'{' { b'}' } else { b']' };
                    if self.text.get(self.at) == Some(&closing) {
                        self.at += 1;
                        open.pop();
                        return Ok(());
                    }
                    if bracket == b'{' {
                        self.key()?;
                    }
                }
                b'"' => return self.string(),
                b't' => return self.word("true"),
                b'f' => return self.word("false"),
                b'n' => return self.word("null"),
                first @ (b'-' | b'0'..=b'9') => return self.number(first),
                other => return Err(unexpected(other, "looking for beginning of value")),
            }
        }
    }

    fn key(&mut self) -> Result<(), String> {
        match self.next()? {
            b'"' => self.string()?,
            other => return Err(unexpected(other, "looking for beginning of object key string")),
        }
        self.space();
        match self.next()? {
            b':' => Ok(()),
            other => Err(unexpected(other, "after object key")),
        }
    }

    fn string(&mut self) -> Result<(), String> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escape()?,
                control @ 0..0x20 => return Err(unexpected(control, "in string literal")),
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Result<(), String> {
        match self.next()? {
            b'b' | b'f' | b'n' | b'r' | b't' | b'\\' | b'/' | b'"' => Ok(()),
            b'u' => (0..4).try_for_each(|_| match self.next()? {
                hex if hex.is_ascii_hexdigit() => Ok(()),
                other => Err(unexpected(other, "in \\u hexadecimal character escape")),
            }),
            other => Err(unexpected(other, "in string escape code")),
        }
    }

    fn word(&mut self, word: &str) -> Result<(), String> {
        for expected in word.bytes().skip(1) {
            let found = self.next()?;
            if found != expected {
                let context = format!("in literal {word} (expecting {})", quoted(expected));
                return Err(unexpected(found, &context));
            }
        }
        Ok(())
    }

    fn number(&mut self, first: u8) -> Result<(), String> {
        let first = if first == b'-' { self.digit("in numeric literal")? } else { first };
        if first != b'0' {
            self.digits();
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digit("after decimal point in numeric literal")?;
            self.digits();
        }
        if matches!(self.text.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.text.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digit("in exponent of numeric literal")?;
            self.digits();
        }
        Ok(())
    }

    fn digit(&mut self, context: &str) -> Result<u8, String> {
        match self.next()? {
            digit @ b'0'..=b'9' => Ok(digit),
            other => Err(unexpected(other, context)),
        }
    }

    fn digits(&mut self) {
        while matches!(self.text.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }
}

fn unexpected(byte: u8, context: &str) -> String {
    format!("invalid character {} {context}", quoted(byte))
}

fn quoted(byte: u8) -> String {
    match byte {
        b'\'' => r"'\''".to_owned(),
        b'"' => "'\"'".to_owned(),
        b'\t' => r"'\t'".to_owned(),
        b'\n' => r"'\n'".to_owned(),
        b'\r' => r"'\r'".to_owned(),
        b'\\' => r"'\\'".to_owned(),
        0..0x20 | 0x7f => format!("'\\x{byte:02x}'"),
        0x80..0xa0 | 0xad => format!("'\\u{:04x}'", u32::from(byte)),
        _ => format!("'{}'", char::from(byte)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn syntax_errors_match_go() {
        let check = |text: &str, expected: &str| {
            assert_eq!(super::check(text.as_bytes()), Err(expected.to_owned()), "{text}")
        };
        check("", "unexpected end of JSON input");
        check("[{", "unexpected end of JSON input");
        check("{\"a\":", "unexpected end of JSON input");
        check("{} xx", "invalid character 'x' after top-level value");
        check("{\"a\":1, /*", "invalid character '/' looking for beginning of object key string");
        check("{,", "invalid character ',' looking for beginning of object key string");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("[1 2]", "invalid character '2' after array element");
        check("{\"a\" 1}", "invalid character '1' after object key");
        check("{\"a\":1 \"b\"}", "invalid character '\"' after object key:value pair");
        check("nul1", "invalid character '1' in literal null (expecting 'l')");
        check("-x", "invalid character 'x' in numeric literal");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("\"\\q\"", "invalid character 'q' in string escape code");
        check("\u{feff}{}", "invalid character 'ï' looking for beginning of value");
        check(&"[".repeat(20_000), "invalid character '[' exceeded max depth");
    }

    #[test]
    fn json_passes() {
        for text in ["null", " {} ", "[]", "[1,-2.5e+3,\"a\\u00e9\",true,false,null,{\"a\":{\"b\":[]}}]", "0"]
        {
            assert_eq!(check(text.as_bytes()), Ok(()), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(check(deep.as_bytes()), Ok(()));
    }
}
