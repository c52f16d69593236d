//! Image references: `[DOMAIN/]PATH[:TAG][@DIGEST]`, with v1.34's grammar.

/// Whether a reference has the tag `latest`, explicitly or by default. An invalid reference has no tag.
pub(super) fn is_latest(image: &str) -> bool {
    match parse(image) {
        Some(Reference { tag: Some(tag), .. }) => tag == "latest",
        Some(Reference { tag: None, has_digest }) => !has_digest,
        None => false,
    }
}

struct Reference<'i> {
    tag: Option<&'i str>,
    has_digest: bool,
}

/// The maximum length of a path.
const MAX_PATH: usize = 255;
const MAX_TAG: usize = 128;

fn parse(image: &str) -> Option<Reference<'_>> {
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if image.len() == 64 && image.bytes().all(is_hex) {
        // An identifier is not a name.
        return None;
    }
    let (named, digest) = match image.split_once('@') {
        Some((named, digest)) => (named, Some(digest)),
        None => (image, None),
    };
    let (domain, rest) = split_domain(named);
    let (path, tag) = match rest.split_once(':') {
        Some((path, tag)) => (path, Some(tag)),
        None => (rest, None),
    };
    let fits = domain.is_none_or(|domain| is_domain(domain) || is_component(domain))
        && path.len() + implied_prefix(domain, path) <= MAX_PATH
        && path.split('/').all(is_component)
        && tag.is_none_or(is_tag)
        && digest.is_none_or(is_digest);
    fits.then_some(Reference { tag, has_digest: digest.is_some() })
}

/// A name without a domain or a slash belongs to `library/`.
fn implied_prefix(domain: Option<&str>, path: &str) -> usize {
    if domain.is_none() && !path.contains('/') { "library/".len() } else { 0 }
}

/// The first part is a domain if it contains a dot, a port or a capital letter, or is `localhost`.
fn split_domain(named: &str) -> (Option<&str>, &str) {
    match named.split_once('/') {
        Some((first, rest))
            if first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first =>
        {
            (Some(first), rest)
        }
        _ => (None, named),
    }
}

fn is_domain(domain: &str) -> bool {
    let (host, port) = match domain.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let is_address =
                !address.is_empty() && address.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b':');
            (is_address, (!port.is_empty()).then(|| port.strip_prefix(':').unwrap_or("")))
        }
        None => match domain.split_once(':') {
            Some((host, port)) => (host.split('.').all(is_label), Some(port)),
            None => (domain.split('.').all(is_label), None),
        },
    };
    host && port.is_none_or(|port| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Lower-case letters and digits, separated by a dot, one or two underscores, or any number of dashes.
fn is_component(component: &str) -> bool {
    let is_letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
    let mut separator = String::new();
    let mut is_first = true;
    for letter in component.chars() {
        if is_letter(letter) {
            let fits = matches!(separator.as_str(), "" | "." | "_" | "__")
                || separator.bytes().all(|byte| byte == b'-');
            if !fits || is_first && !separator.is_empty() {
                return false;
            }
            separator.clear();
            is_first = false;
        } else if matches!(letter, '.' | '_' | '-') {
            separator.push(letter);
        } else {
            return false;
        }
    }
    !is_first && separator.is_empty()
}

fn is_tag(tag: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let mut bytes = tag.bytes();
    tag.len() <= MAX_TAG
        && bytes.next().is_some_and(is_word)
        && bytes.all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
}

/// `ALGORITHM:HEX`, with a known algorithm.
fn is_digest(digest: &str) -> bool {
    let length = match digest.split_once(':').map(|(algorithm, _)| algorithm) {
        Some("sha256") => 64,
        Some("sha384") => 96,
        Some("sha512") => 128,
        _ => return false,
    };
    let hex = &digest["sha256:".len()..];
    hex.len() == length && hex.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_tag_is_explicit_or_implied() {
        let digest = format!("@sha256:{}", "a".repeat(64));
        for image in [
            "nginx",
            "nginx:latest",
            "library/nginx",
            "registry.k8s.io/pause",
            "localhost/a",
            "localhost:5000/a/b:latest",
            "[::1]:5000/a",
            "a__b/c-d.e",
            "foo_bar.com/a",
            &format!("nginx:latest{digest}"),
            "UPPER.example.com/a",
            &"a".repeat(247),
        ] {
            assert!(is_latest(image), "{image}");
        }
        for image in [
            "",
            "nginx:1",
            &format!("nginx{digest}"),
            "ko://knative.dev/x",
            "https://example.com/a",
            "oci://a/b",
            "Nginx",
            "a b",
            "a//b",
            "/a",
            "a/",
            "a..b",
            "a___b",
            "-a",
            "a:",
            "a:-x",
            "a@sha256:abc",
            "a@md5:d41d8cd98f00b204e9800998ecf8427e",
            "example.com:x/a",
            "example.com:/a",
            "{{ .Values.image }}",
            "$(IMAGE)",
            &"a".repeat(64),
            &"a".repeat(248),
        ] {
            assert!(!is_latest(image), "{image}");
        }
    }
}
