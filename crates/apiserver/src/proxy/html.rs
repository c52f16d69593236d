//! Rewrites links in streamed HTML pages, as v1.34 does: URLs in start tags are replaced, and everything else passes
//! unchanged.
//!
//! At most one start tag of [`TAG_BYTES`] is buffered. After a longer one, the rest of the page passes unchanged.

use std::borrow::Cow;

/// Maximum size of a start tag.
const TAG_BYTES: usize = 64 << 10;

/// The attributes that are URLs.
const URLS: &[(&str, &[&str])] = &[
    ("a", &["href"]),
    ("applet", &["codebase"]),
    ("area", &["href"]),
    ("audio", &["src"]),
    ("base", &["href"]),
    ("blockquote", &["cite"]),
    ("body", &["background"]),
    ("button", &["formaction"]),
    ("command", &["icon"]),
    ("del", &["cite"]),
    ("embed", &["src"]),
    ("form", &["action"]),
    ("frame", &["longdesc", "src"]),
    ("head", &["profile"]),
    ("html", &["manifest"]),
    ("iframe", &["longdesc", "src"]),
    ("img", &["longdesc", "src", "usemap"]),
    ("input", &["src", "usemap", "formaction"]),
    ("ins", &["cite"]),
    ("link", &["href"]),
    ("object", &["classid", "codebase", "data", "usemap"]),
    ("q", &["cite"]),
    ("script", &["src"]),
    ("source", &["src"]),
    ("video", &["poster", "src"]),
];

/// Elements whose content is text up to their end tag.
const RAW: [&str; 9] =
    ["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp", "plaintext"];

/// Rewrites a URL; `None` leaves it as it is.
pub(crate) type Rewriter = Box<dyn Fn(&str) -> Option<String> + Send>;

/// A page being streamed.
pub(crate) struct Page {
    rewrite: Rewriter,
    state: State,
    /// The bytes of a tag, or of a possible tag.
    held: Vec<u8>,
}

enum State {
    Text,
    /// After `<`.
    Opening,
    /// After `</`.
    Closing,
    /// After `<!`, while it may become a comment.
    Declaring,
    Start(Tag),
    /// An end tag: passes, but quotes hide its end.
    End(Tag),
    /// A comment, and how much of its end was seen.
    Comment(usize),
    /// Anything else up to the next `>`.
    Bogus,
    /// The content of an element that ends only with its end tag.
    Raw(&'static str),
    /// Everything else passes.
    Passing,
}

/// The position in a tag, and what was read of it so far.
#[derive(Default)]
struct Tag {
    part: Part,
    /// An end tag passes unchanged. Nothing of it is recorded, so it may have any length.
    is_end: bool,
    name: Vec<u8>,
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

#[derive(Clone, Copy, Default)]
enum Part {
    #[default]
    Name,
    BeforeKey,
    Key,
    AfterKey,
    BeforeValue,
    Quoted(u8),
    Unquoted,
}

impl Page {
    pub(crate) fn new(rewrite: Rewriter) -> Self {
        Self { rewrite, state: State::Text, held: Vec::new() }
    }

    /// Rewrites the next piece of the page.
    pub(crate) fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(piece.len() + 64);
        for byte in piece {
            self.step(*byte, &mut out);
        }
        out
    }

    /// Returns the rest. A tag that never ended is dropped, as in v1.34.
    pub(crate) fn finish(self) -> Vec<u8> {
        match self.state {
            State::Start(_) => Vec::new(),
            _ => self.held,
        }
    }

    fn step(&mut self, byte: u8, out: &mut Vec<u8>) {
        match &mut self.state {
            State::Passing => out.push(byte),
            State::Text if byte == b'<' => self.hold(State::Opening, byte),
            State::Text => out.push(byte),
            State::Opening => self.open(byte, out),
            State::Closing => self.close(byte, out),
            State::Declaring => self.declare(byte, out),
            State::Start(tag) => {
                self.held.push(byte);
                if tag.step(byte) {
                    self.write_tag(out);
                } else if self.held.len() > TAG_BYTES {
                    self.release(State::Passing, out);
                }
            }
            State::End(tag) => {
                out.push(byte);
                if tag.step(byte) {
                    self.state = State::Text;
                }
            }
            State::Comment(seen) => {
                out.push(byte);
                match (byte, *seen) {
                    (b'-', seen) => self.state = State::Comment((seen + 1).min(2)),
                    (b'>', 2) => self.state = State::Text,
                    // `--!>` ends a comment, too.
                    (b'!', 2) => {}
                    _ => *seen = 0,
                }
            }
            State::Bogus => {
                out.push(byte);
                if byte == b'>' {
                    self.state = State::Text;
                }
            }
            State::Raw(name) => {
                let name = *name;
                self.raw(name, byte, out);
            }
        }
    }

    fn hold(&mut self, state: State, byte: u8) {
        self.held.push(byte);
        self.state = state;
    }

    /// Emits the buffered bytes unchanged.
    fn release(&mut self, state: State, out: &mut Vec<u8>) {
        out.append(&mut self.held);
        self.state = state;
    }

    /// Handles the byte after `<`.
    fn open(&mut self, byte: u8, out: &mut Vec<u8>) {
        match byte {
            b'/' => self.hold(State::Closing, byte),
            b'!' => self.hold(State::Declaring, byte),
            byte if byte.is_ascii_alphabetic() => {
                let mut tag = Tag::default();
                tag.step(byte);
                self.hold(State::Start(tag), byte);
            }
            b'?' => {
                self.held.push(byte);
                self.release(State::Bogus, out);
            }
            // A plain less-than sign.
            byte => {
                self.release(State::Text, out);
                self.step(byte, out);
            }
        }
    }

    /// Handles the byte after `</`.
    fn close(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        let mut tag = Tag::end();
        let state = match byte {
            b'>' => State::Text,
            byte if byte.is_ascii_alphabetic() => {
                tag.step(byte);
                State::End(tag)
            }
            _ => State::Bogus,
        };
        self.release(state, out);
    }

    /// Handles what follows `<!`.
    fn declare(&mut self, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        match self.held.as_slice() {
            b"<!-" => {}
            // `<!-->` and `<!--->` are comments, too.
            b"<!--" => self.release(State::Comment(2), out),
            [.., b'>'] => self.release(State::Text, out),
            _ => self.release(State::Bogus, out),
        }
    }

    /// Looks for the end tag of an element of text.
    fn raw(&mut self, name: &'static str, byte: u8, out: &mut Vec<u8>) {
        self.held.push(byte);
        let expected = [b"</", name.as_bytes()].concat();
        let at = self.held.len() - 1;
        match expected.get(at) {
            Some(expected) if byte.eq_ignore_ascii_case(expected) => {}
            None if matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c | b'/' | b'>') => {
                let mut tag = Tag::end();
                // Only the last byte can end the tag.
                let has_ended = self.held[2..].iter().any(|byte| tag.step(*byte));
                self.release(if has_ended { State::Text } else { State::End(tag) }, out);
            }
            // This byte may be the start of the end tag.
            _ if byte == b'<' => {
                self.held.pop();
                self.release(State::Raw(name), out);
                self.held.push(byte);
            }
            _ => self.release(State::Raw(name), out),
        }
    }

    /// Rewrites a start tag.
    fn write_tag(&mut self, out: &mut Vec<u8>) {
        let State::Start(tag) = std::mem::replace(&mut self.state, State::Text) else { return };
        let closes_itself = self.held.ends_with(b"/>");
        self.held.clear();
        let name = lower(&tag.name);
        out.push(b'<');
        out.extend(name.bytes());
        let urls = URLS.iter().find(|(element, _)| *element == name).map_or(&[][..], |(_, urls)| *urls);
        for (key, value) in tag.attributes {
            let (key, value) = (lower(&key), String::from_utf8_lossy(&value).replace("\r\n", "\n"));
            let value =
                match urls.contains(&key.as_str()).then(|| (self.rewrite)(&unescaped(&value))).flatten() {
                    Some(url) => escaped(&url),
                    None => normalized(&value),
                };
            out.extend(format!(" {key}=\"{value}\"").bytes());
        }
        out.extend(if closes_itself { &b"/>"[..] } else { b">" });
        match RAW.iter().find(|element| **element == name) {
            Some(&"plaintext") => self.state = State::Passing,
            Some(element) => self.state = State::Raw(element),
            None => {}
        }
    }
}

impl Tag {
    fn end() -> Self {
        Self { is_end: true, ..Self::default() }
    }

    /// Reads a byte of the tag. Returns whether it ends the tag.
    fn step(&mut self, byte: u8) -> bool {
        let is_space = matches!(byte, b' ' | b'\n' | b'\r' | b'\t' | 0x0c);
        match self.part {
            Part::Name if is_space => self.part = Part::BeforeKey,
            Part::Name if matches!(byte, b'/' | b'>') => return self.before_key(byte),
            Part::Name if self.is_end => {}
            Part::Name => self.name.push(byte),
            Part::BeforeKey if is_space => {}
            Part::BeforeKey => return self.before_key(byte),
            Part::Key => {
                // A key has at least one byte, even if that is an equals sign.
                if is_space || matches!(byte, b'/' | b'>' | b'=') {
                    return self.after_key(byte);
                }
                self.attributes.last_mut().into_iter().for_each(|(key, _)| key.push(byte));
            }
            Part::AfterKey => return self.after_key(byte),
            Part::BeforeValue => match byte {
                _ if is_space => {}
                b'>' => return true,
                b'"' | b'\'' => self.part = Part::Quoted(byte),
                byte => {
                    self.part = Part::Unquoted;
                    self.add_to_value(byte);
                }
            },
            Part::Quoted(quote) if byte == quote => self.part = Part::BeforeKey,
            Part::Unquoted if is_space => self.part = Part::BeforeKey,
            Part::Unquoted if byte == b'>' => return true,
            Part::Quoted(_) | Part::Unquoted => self.add_to_value(byte),
        }
        false
    }

    fn before_key(&mut self, byte: u8) -> bool {
        match byte {
            b'>' => return true,
            b'/' => self.part = Part::BeforeKey,
            byte => {
                if !self.is_end {
                    self.attributes.push((vec![byte], Vec::new()));
                }
                self.part = Part::Key;
            }
        }
        false
    }

    fn after_key(&mut self, byte: u8) -> bool {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' | 0x0c => self.part = Part::AfterKey,
            b'=' => self.part = Part::BeforeValue,
            byte => return self.before_key(byte),
        }
        false
    }

    fn add_to_value(&mut self, byte: u8) {
        self.attributes.last_mut().into_iter().for_each(|(_, value)| value.push(byte));
    }
}

fn lower(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_ascii_lowercase()
}

/// Splits off a character reference at the start: its length, and the character if it is known.
fn reference(text: &str) -> Option<(usize, Option<char>)> {
    let body = text.strip_prefix('&')?;
    let end = body.find(|c: char| !c.is_ascii_alphanumeric() && c != '#').filter(|end| *end > 0)?;
    if !body[end..].starts_with(';') {
        return None;
    }
    let number = body[..end].strip_prefix('#');
    let hexadecimal = number.and_then(|number| number.strip_prefix(['x', 'X']));
    let known = match (hexadecimal, number, &body[..end]) {
        (Some(digits), ..) => u32::from_str_radix(digits, 16).ok().and_then(char::from_u32),
        (_, Some(digits), _) => digits.parse().ok().and_then(char::from_u32),
        (.., "amp") => Some('&'),
        (.., "lt") => Some('<'),
        (.., "gt") => Some('>'),
        (.., "quot") => Some('"'),
        (.., "apos") => Some('\''),
        (.., "nbsp") => Some('\u{a0}'),
        _ => None,
    };
    Some((end + 2, known))
}

/// Resolves the known references.
fn unescaped(text: &str) -> Cow<'_, str> {
    if !text.contains('&') {
        return Cow::Borrowed(text);
    }
    let (mut resolved, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        resolved.push_str(&rest[..at]);
        rest = &rest[at..];
        match reference(rest) {
            Some((length, Some(known))) => {
                resolved.push(known);
                rest = &rest[length..];
            }
            _ => {
                resolved.push('&');
                rest = &rest[1..];
            }
        }
    }
    Cow::Owned(resolved + rest)
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '\'' => escaped.push_str("&#39;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&#34;"),
            '\r' => escaped.push_str("&#13;"),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Writes a value as v1.34 does. Unknown references stay unchanged.
fn normalized(text: &str) -> String {
    let (mut normalized, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('&') {
        normalized.push_str(&escaped(&rest[..at]));
        rest = &rest[at..];
        let length = match reference(rest) {
            Some((length, Some(known))) => {
                normalized.push_str(&escaped(known.encode_utf8(&mut [0; 4])));
                length
            }
            Some((length, None)) => {
                normalized.push_str(&rest[..length]);
                length
            }
            None => {
                normalized.push_str("&amp;");
                1
            }
        };
        rest = &rest[length..];
    }
    normalized + &escaped(rest)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page() -> Page {
        Page::new(Box::new(|url| url.starts_with('/').then(|| format!("/proxy{url}"))))
    }

    fn rewritten(text: &str, cut: usize) -> String {
        let (mut page, mut out) = (page(), Vec::new());
        for piece in text.as_bytes().chunks(cut) {
            out.extend(page.push(piece));
        }
        out.extend(page.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn links_are_rewritten_and_the_rest_passes() {
        for (text, expected) in [
            (r#"<a href="/x">l</a>"#, r#"<a href="/proxy/x">l</a>"#),
            (r#"<A HREF='/x?a=1&amp;b=2' class=c>"#, r#"<a href="/proxy/x?a=1&amp;b=2" class="c">"#),
            (r#"<img src=/i.png/>"#, r#"<img src="/proxy/i.png/"/>"#),
            (r#"<img src="/i.png" />text"#, r#"<img src="/proxy/i.png"/>text"#),
            (r#"<a href="relative">"#, r#"<a href="relative">"#),
            (r#"<p title='a > "b"' data-x>"#, r#"<p title="a &gt; &#34;b&#34;" data-x="">"#),
            (r#"<a title="&copy; &foo &amp;" href=x>"#, r#"<a title="&copy; &amp;foo &amp;" href="x">"#),
            ("a < b </a ><>", "a < b </a ><>"),
            (r#"<!-- <a href="/x"> --><b>"#, r#"<!-- <a href="/x"> --><b>"#),
            ("<!DOCTYPE html><?php x ?>", "<!DOCTYPE html><?php x ?>"),
            (
                r#"<script src="/s.js">if (a<b) "<a href='/x'>"</script><a href=/y>"#,
                r#"<script src="/proxy/s.js">if (a<b) "<a href='/x'>"</script><a href="/proxy/y">"#,
            ),
            ("<style><</STYLE ><a href=/y>", "<style><</STYLE ><a href=\"/proxy/y\">"),
            (r#"cut <a href="/x"#, "cut "),
            ("<textarea></textareas></textarea>", "<textarea></textareas></textarea>"),
        ] {
            for cut in [1, 3, 1000] {
                assert_eq!(rewritten(text, cut), expected, "{text} in pieces of {cut}");
            }
        }
    }

    #[test]
    fn after_a_tag_that_is_too_long_the_page_passes_unchanged() {
        let long = format!("<a href=\"{}\"><a href=\"/x\">", "y".repeat(TAG_BYTES));
        assert_eq!(rewritten(&long, 4096), long);
    }

    #[test]
    fn an_end_tag_of_any_length_passes_and_is_not_held() {
        for start in ["</a", "</a x", "</a x=", "</a x='", "<script></script "] {
            let mut page = page();
            page.push(start.as_bytes());
            for _ in 0..64 {
                assert_eq!(page.push(&[b'x'; 4096]).len(), 4096, "{start}");
            }
            let State::End(tag) = &page.state else { panic!("{start} is in an end tag") };
            let recorded: usize = tag.attributes.iter().map(|(key, value)| key.len() + value.len()).sum();
            assert_eq!(tag.name.len() + tag.attributes.len() + recorded + page.held.len(), 0, "{start}");
        }
        assert_eq!(rewritten("</a b='>' c><a href=/x>", 3), "</a b='>' c><a href=\"/proxy/x\">");
    }

    proptest! {
        #[test]
        fn pieces_make_no_difference(text in "[<>/!a='\" &;-]{0,80}|(<a href='/x'>|<script>|</script>|<!--|-->|text){0,12}", cut in 1..9_usize) {
            prop_assert_eq!(rewritten(&text, cut), rewritten(&text, 1000));
        }

        #[test]
        fn any_bytes_pass(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut page = page();
            page.push(&bytes);
            page.finish();
        }
    }
}
