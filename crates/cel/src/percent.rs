//! Percent encoding in URLs and queries.

use std::borrow::Cow;

/// Decodes percent encoding, and `+` as a space if `plus` is set. Returns `None` if it is malformed.
pub fn decode(text: &str, plus: bool) -> Option<Cow<'_, str>> {
    if !(text.contains('%') || plus && text.contains('+')) {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        match first {
            b'%' => {
                let [high, low, tail @ ..] = rest else { return None };
                bytes.push((hex(*high)? << 4) | hex(*low)?);
                rest = tail;
            }
            b'+' if plus => bytes.push(b' '),
            byte => bytes.push(*byte),
        }
    }
    Some(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}
