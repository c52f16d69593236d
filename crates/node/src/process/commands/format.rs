//! The formats of `printf` and the escapes of `echo -e`. Pure.

use crate::process::pace::MAX_TEXT;

/// Replaces escapes. Also returns whether `\c` cuts the text off.
pub(super) fn escaped(text: &str) -> (Vec<u8>, bool) {
    let (mut bytes, mut rest) = (Vec::new(), text);
    while let Some(next) = rest.chars().next() {
        if next != '\\' {
            bytes.extend_from_slice(next.encode_utf8(&mut [0; 4]).as_bytes());
            rest = &rest[next.len_utf8()..];
            continue;
        }
        if rest.starts_with("\\c") {
            return (bytes, true);
        }
        rest = push_escape(&rest[1..], &mut bytes);
    }
    (bytes, false)
}

/// Pushes the character of an escape, and returns the text after it.
fn push_escape<'t>(after: &'t str, bytes: &mut Vec<u8>) -> &'t str {
    let Some(letter) = after.chars().next() else {
        bytes.push(b'\\');
        return after;
    };
    let plain = match letter {
        'n' => b'\n',
        't' => b'\t',
        'r' => b'\r',
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'v' => 11,
        'e' => 27,
        '\\' => b'\\',
        '"' => b'"',
        '\'' => b'\'',
        '0'..='7' => return push_number(after, 8, if letter == '0' { 4 } else { 3 }, bytes),
        'x' => return push_number(&after[1..], 16, 2, bytes),
        other => {
            bytes.push(b'\\');
            bytes.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
            return &after[other.len_utf8()..];
        }
    };
    bytes.push(plain);
    &after[1..]
}

fn push_number<'t>(after: &'t str, radix: u32, most: usize, bytes: &mut Vec<u8>) -> &'t str {
    let end = after.chars().take(most).take_while(|c| c.is_digit(radix)).count();
    bytes.push(u32::from_str_radix(&after[..end], radix).unwrap_or(0) as u8);
    &after[end..]
}

/// A conversion such as `%-5.2s`.
struct Conversion {
    is_left: bool,
    is_zero_padded: bool,
    has_sign: bool,
    width: usize,
    precision: Option<usize>,
    letter: char,
}

/// The maximum field width: more is a mistake.
const WIDEST: usize = 4096;

/// Formats arguments. The format is repeated while there are arguments left. `None` if it is invalid.
pub(super) fn formatted(format: &str, arguments: &[String]) -> Option<Vec<u8>> {
    let (mut text, mut arguments) = (Vec::new(), arguments.iter());
    loop {
        let before = arguments.len();
        let is_cut = format_once(format, &mut arguments, &mut text)?;
        if text.len() > MAX_TEXT {
            return None;
        }
        if is_cut || arguments.len() == 0 || arguments.len() == before {
            return Some(text);
        }
    }
}

fn format_once(
    format: &str,
    arguments: &mut std::slice::Iter<'_, String>,
    text: &mut Vec<u8>,
) -> Option<bool> {
    let mut rest = format;
    while let Some(next) = rest.chars().next() {
        match next {
            '\\' if rest.starts_with("\\c") => return Some(true),
            '\\' => rest = push_escape(&rest[1..], text),
            '%' if rest.starts_with("%%") => {
                text.push(b'%');
                rest = &rest[2..];
            }
            '%' => {
                let (conversion, after) = Conversion::parse(&rest[1..], arguments)?;
                let argument = arguments.next().map_or("", String::as_str);
                text.extend(conversion.apply(argument)?);
                if text.len() > MAX_TEXT {
                    return None;
                }
                rest = after;
            }
            other => {
                text.extend_from_slice(other.encode_utf8(&mut [0; 4]).as_bytes());
                rest = &rest[other.len_utf8()..];
            }
        }
    }
    Some(false)
}

impl Conversion {
    fn parse<'t>(text: &'t str, arguments: &mut std::slice::Iter<'_, String>) -> Option<(Self, &'t str)> {
        let flags = text.chars().take_while(|c| "-0+ #".contains(*c)).count();
        let (flags, rest) = text.split_at(flags);
        let (width, rest) = number(rest, arguments);
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => {
                let (precision, rest) = number(rest, arguments);
                (Some(precision.unwrap_or(0)), rest)
            }
            None => (None, rest),
        };
        let letter = rest.chars().next()?;
        let conversion = Self {
            is_left: flags.contains('-'),
            is_zero_padded: flags.contains('0'),
            has_sign: flags.contains('+'),
            width: width.unwrap_or(0).min(WIDEST),
            precision: precision.map(|precision| precision.min(WIDEST)),
            letter,
        };
        Some((conversion, &rest[letter.len_utf8()..]))
    }

    fn apply(&self, argument: &str) -> Option<Vec<u8>> {
        let body = match self.letter {
            's' => {
                argument.chars().take(self.precision.unwrap_or(usize::MAX)).collect::<String>().into_bytes()
            }
            'b' => escaped(argument).0,
            'c' => argument.chars().take(1).collect::<String>().into_bytes(),
            'd' | 'i' | 'u' => {
                let number = integer(argument)?;
                if self.has_sign && number >= 0 { format!("+{number}") } else { number.to_string() }
                    .into_bytes()
            }
            'x' => format!("{:x}", integer(argument)?).into_bytes(),
            'X' => format!("{:X}", integer(argument)?).into_bytes(),
            'o' => format!("{:o}", integer(argument)?).into_bytes(),
            'f' => {
                let number = if argument.is_empty() { 0.0 } else { argument.parse::<f64>().ok()? };
                format!("{number:.*}", self.precision.unwrap_or(6)).into_bytes()
            }
            _ => return None,
        };
        Some(self.padded(body))
    }

    fn padded(&self, body: Vec<u8>) -> Vec<u8> {
        let missing = self.width.saturating_sub(String::from_utf8_lossy(&body).chars().count());
        let is_number = !"sbc".contains(self.letter);
        let zeros = self.is_zero_padded && !self.is_left && is_number;
        let filling = vec![if zeros { b'0' } else { b' ' }; missing];
        match self.is_left {
            true => [body, filling].concat(),
            false => match body.strip_prefix(b"-").filter(|_| zeros) {
                Some(digits) => [b"-", &*filling, digits].concat(),
                None => [filling, body].concat(),
            },
        }
    }
}

fn integer(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        _ if text.is_empty() => Some(0),
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Reads a number, or takes it from the arguments for a star.
fn number<'t>(text: &'t str, arguments: &mut std::slice::Iter<'_, String>) -> (Option<usize>, &'t str) {
    if let Some(rest) = text.strip_prefix('*') {
        return (arguments.next().and_then(|number| number.parse().ok()), rest);
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].parse().ok(), &text[end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_have_the_result_of_printf() {
        let check = |format: &str, arguments: &[&str], expected: Option<&str>| {
            let arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
            let text = formatted(format, &arguments);
            assert_eq!(text.as_deref(), expected.map(str::as_bytes), "{format}");
        };
        check("%s is %d\\n", &["a", "1"], Some("a is 1\n"));
        check("%s\\n", &["a", "b"], Some("a\nb\n"));
        check("%5s|%-5s|%05d", &["a", "b", "-7"], Some("    a|b    |-0007"));
        check("%x %o %c %.2f %.2s", &["255", "8", "xyz", "1.234", "abc"], Some("ff 10 x 1.23 ab"));
        check("100%%", &[], Some("100%"));
        check("%b", &["a\\tb"], Some("a\tb"));
        check("%*d", &["4", "7"], Some("   7"));
        check("\\x41\\101\\0", &[], Some("AA\0"));
        check("plain", &["ignored"], Some("plain"));
        check("%d", &["x"], None);
        check("%q", &["x"], None);
        check("%", &[], None);
    }
}
