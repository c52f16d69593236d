//! What makes a URL invalid, in the words of Go's `net/url`.

/// Returns why a text is no URL, if it is none.
pub(super) fn mistake(text: &str) -> Option<String> {
    let (url, fragment) = text.split_once('#').unwrap_or((text, ""));
    if url.bytes().any(|byte| byte < b' ' || byte == 0x7f) {
        return Some("net/url: invalid control character in URL".into());
    }
    let (scheme, rest) = match scheme(url) {
        Ok(parts) => parts,
        Err(why) => return Some(why.into()),
    };
    let rest = rest.split_once('?').map_or(rest, |(before, _)| before);
    if !rest.starts_with('/') {
        let first = rest.split('/').next().unwrap_or_default();
        let is_confusing = scheme.is_empty() && first.contains(':');
        return is_confusing.then(|| "first path segment in URL cannot contain colon".into());
    }
    let authority = rest.strip_prefix("//").filter(|_| !scheme.is_empty() || !rest.starts_with("///"));
    let (authority, path) = match authority {
        Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
        None => ("", rest),
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&byte);
    check_host(host)
        .or_else(|| (!user.bytes().all(is_user)).then(|| "net/url: invalid userinfo".into()))
        .or_else(|| [user, path, fragment].into_iter().find_map(bad_escape))
}

/// Splits the scheme off. A text that begins with another letter has none.
fn scheme(url: &str) -> Result<(&str, &str), &'static str> {
    for (at, byte) in url.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' => {}
            b'0'..=b'9' | b'+' | b'-' | b'.' if at > 0 => {}
            b':' if at == 0 => return Err("missing protocol scheme"),
            b':' => return Ok((&url[..at], &url[at + 1..])),
            _ => break,
        }
    }
    Ok(("", url))
}

fn check_host(host: &str) -> Option<String> {
    let after = match host.strip_prefix('[') {
        Some(_) => match host.rfind(']') {
            Some(end) => &host[end + 1..],
            None => return Some("missing ']' in host".into()),
        },
        None => host.rfind(':').map_or("", |colon| &host[colon..]),
    };
    let is_port = after.is_empty()
        || after.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    if !is_port {
        return Some(format!("invalid port {after:?} after host"));
    }
    let is_allowed =
        |byte: u8| byte >= 0x80 || byte.is_ascii_alphanumeric() || b"-_.~!$&'()*+,;=:[]<>\"%".contains(&byte);
    let wrong = host.bytes().find(|byte| !is_allowed(*byte));
    let wrong =
        wrong.map(|byte| format!("invalid character {:?} in host name", char::from(byte).to_string()));
    wrong.or_else(|| bad_escape(host))
}

/// The first `%` that two hexadecimal digits do not follow.
fn bad_escape(text: &str) -> Option<String> {
    let mut parts = text.match_indices('%').map(|(at, _)| &text[at..]);
    let is_escape = |part: &&str| {
        let digits = part.as_bytes().get(1..3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let found = parts.find(|part| !is_escape(part))?;
    let shown: String = found.chars().take(3).collect();
    Some(format!("invalid URL escape {shown:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_that_go_rejects_is_rejected_in_its_words() {
        for (url, why) in [
            ("https://h/x", None),
            ("https://[::1]:443/x%20y", None),
            ("https://user:p@h:1/", None),
            ("h", None),
            ("https:opaque", None),
            ("", None),
            (":x", Some("missing protocol scheme")),
            ("https://h h/", Some(r#"invalid character " " in host name"#)),
            ("https://h/%zz", Some(r#"invalid URL escape "%zz""#)),
            ("https://h/%2", Some(r#"invalid URL escape "%2""#)),
            ("https://h:a/", Some(r#"invalid port ":a" after host"#)),
            ("https://[::1/", Some("missing ']' in host")),
            ("https://a b@h/", Some("net/url: invalid userinfo")),
            ("1a:b/c", Some("first path segment in URL cannot contain colon")),
            ("https://h/\n", Some("net/url: invalid control character in URL")),
        ] {
            assert_eq!(mistake(url).as_deref(), why, "{url:?}");
        }
    }
}
