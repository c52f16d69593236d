//! Images of containers: which cannot be pulled, and when a kubelet tries again. Pure.

use std::time::Duration;

use crate::files::pattern::matches;

pub(crate) const PULL_FAILED: &str = "ErrImagePull";
pub(crate) const PULL_BACK_OFF: &str = "ImagePullBackOff";
pub(crate) const NEVER_PULLED: &str = "ErrImageNeverPull";
pub(crate) const INVALID_NAME: &str = "InvalidImageName";

/// The kubelet's delays between attempts.
const MIN_BACK_OFF: Duration = Duration::from_secs(10);
const MAX_BACK_OFF: Duration = Duration::from_secs(300);

/// The most patterns of a pod's annotation, and how long each may be. Each pod that starts is matched against all of them:
/// 32 × 3 names of 512 bytes × 256 bytes, some 10 ms at worst.
const PATTERNS: usize = 32;
const PATTERN_BYTES: usize = 256;

/// The longest name of a repository, as in the grammar of references.
const REPOSITORY_BYTES: usize = 255;

/// Lists the patterns of an annotation. Those above the limits are ignored.
pub(crate) fn patterns(annotation: &str) -> impl Iterator<Item = &str> {
    if annotation.split(',').nth(PATTERNS).is_some() {
        tracing::debug!("only the first {PATTERNS} patterns of missing images count");
    }
    let is_short = |pattern: &&str| {
        if pattern.len() > PATTERN_BYTES {
            tracing::debug!("a pattern of missing images is longer than {PATTERN_BYTES} bytes, and ignored");
        }
        pattern.len() <= PATTERN_BYTES
    };
    annotation.split(',').take(PATTERNS).filter(is_short)
}

/// Whether a container can be started with its image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    Present,
    /// It cannot be pulled, and this is why.
    Unpullable(String),
    /// It is not on the node, and must not be pulled.
    NotPresent(String),
    /// It is no reference to an image.
    Invalid(String),
}

/// Returns whether an image can be used. `missing` are patterns.
pub(crate) fn image<'p>(
    name: &str,
    is_never_pulled: bool,
    mut missing: impl Iterator<Item = &'p str>,
) -> Image {
    // The API server accepts no container without an image.
    if let Err(why) = check(name)
        && !name.is_empty()
    {
        let why =
            format!("Failed to apply default image tag {name:?}: couldn't parse image name {name:?}: {why}");
        return Image::Invalid(why);
    }
    if !missing.any(|pattern| is_named(name, pattern)) {
        return Image::Present;
    }
    if is_never_pulled {
        return Image::NotPresent(format!(
            "Container image {name:?} is not present with pull policy of Never"
        ));
    }
    Image::Unpullable(pull_error(name))
}

/// The error of a container runtime whose registry does not have an image.
pub(crate) fn pull_error(name: &str) -> String {
    let full = full_name(name);
    format!(
        "rpc error: code = NotFound desc = failed to pull and unpack image {full:?}: failed to resolve reference {full:?}: {full}: not found"
    )
}

/// Whether a pattern names an image: as it is written, with its default tag, or with its registry.
fn is_named(name: &str, pattern: &str) -> bool {
    let pattern = pattern.trim();
    let full = full_name(name);
    let tagged = if full.ends_with(name) { name.to_owned() } else { format!("{name}:latest") };
    !pattern.is_empty() && [name, &tagged, &full].into_iter().any(|name| matches(pattern, name))
}

/// Returns the name with its registry and tag.
fn full_name(name: &str) -> String {
    let (domain, rest) = match name.split_once('/') {
        Some((domain, rest)) if domain.contains(['.', ':']) || domain == "localhost" => {
            (domain, rest.to_owned())
        }
        Some(_) => ("docker.io", name.to_owned()),
        None => ("docker.io", format!("library/{name}")),
    };
    let is_tagged = rest.contains('@') || rest.rsplit('/').next().is_some_and(|last| last.contains(':'));
    let tag = if is_tagged { "" } else { ":latest" };
    format!("{domain}/{rest}{tag}")
}

/// Checks a reference to an image.
fn check(name: &str) -> Result<(), String> {
    let invalid = || "invalid reference format".to_owned();
    let (rest, digest) = match name.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (name, None),
    };
    if digest.is_some_and(|digest| !is_digest(digest)) {
        return Err(invalid());
    }
    let last = rest.rfind('/').map_or(0, |at| at + 1);
    let (path, tag) = match rest[last..].split_once(':') {
        Some((_, tag)) => (&rest[..rest.len() - tag.len() - 1], Some(tag)),
        None => (rest, None),
    };
    if tag.is_some_and(|tag| !is_tag(tag)) {
        return Err(invalid());
    }
    let path = match path.split_once('/') {
        Some((domain, path)) if is_domain(domain) => path,
        _ => path,
    };
    if path.split('/').all(is_component) {
        return match with_library(path).len() > REPOSITORY_BYTES {
            true => Err(format!("repository name must not be more than {REPOSITORY_BYTES} characters")),
            false => Ok(()),
        };
    }
    match path.to_lowercase().split('/').all(is_component) {
        true => Err(format!(
            "invalid reference format: repository name ({}) must be lowercase",
            with_library(path)
        )),
        false => Err(invalid()),
    }
}

fn with_library(path: &str) -> String {
    if path.contains('/') { path.to_owned() } else { format!("library/{path}") }
}

fn is_domain(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "0"));
    let is_host =
        !host.is_empty() && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    let has_port = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    is_host && has_port && (text.contains(['.', ':']) || text == "localhost")
}

/// Names of lower-case letters and digits, separated by `.`, `_`, `__` or dashes.
fn is_component(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(is_plain).filter(|between| !between.is_empty());
    let is_separator = |text: &str| matches!(text, "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    text.starts_with(is_plain) && text.ends_with(is_plain) && separators.clone().all(is_separator)
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.len() <= 128
        && text.starts_with(is_word)
        && text.chars().all(|c| is_word(c) || matches!(c, '.' | '-'))
}

fn is_digest(text: &str) -> bool {
    text.split_once(':').is_some_and(|(algorithm, value)| {
        algorithm.starts_with(|c: char| c.is_ascii_alphabetic())
            && algorithm.chars().all(|c| c.is_ascii_alphanumeric() || "-_+.".contains(c))
            && (32..=128).contains(&value.len())
            && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

/// Returns when the last attempt to pull an image was made and when the next one is, for a container that has waited this
/// long: at once, after 10 s, after 20 s more, and so on up to 5 min.
pub(crate) fn attempts(waited: Duration) -> (Duration, Duration) {
    let (mut last, mut delay) = (Duration::ZERO, MIN_BACK_OFF);
    while delay < MAX_BACK_OFF && last + delay <= waited {
        last += delay;
        delay = (delay * 2).min(MAX_BACK_OFF);
    }
    if delay == MAX_BACK_OFF {
        let rounds = (waited.saturating_sub(last)).as_secs() / MAX_BACK_OFF.as_secs();
        last += Duration::from_secs(rounds * MAX_BACK_OFF.as_secs());
    }
    (last, last + delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_missing_if_a_pattern_names_them() {
        let check = |name: &str, pattern: &str, expected: bool| {
            let found = image(name, false, pattern.split(','));
            assert_eq!(found == Image::Unpullable(pull_error(name)), expected, "{name} {pattern}");
        };
        check("nginx", "nginx", true);
        check("nginx", "nginx:latest", true);
        check("nginx", "docker.io/library/*", true);
        check("nginx:1.2", "nginx:1.*", true);
        check("nginx:1.2", "nginx", false);
        check("ghcr.io/acme/app:1", "other, ghcr.io/acme/*", true);
        check("ghcr.io/acme/app:1", "", false);
        let never = image("x", true, ["x"].into_iter());
        assert_eq!(
            never,
            Image::NotPresent("Container image \"x\" is not present with pull policy of Never".into())
        );
        let expected = "rpc error: code = NotFound desc = failed to pull and unpack image \"docker.io/library/x:latest\": failed to resolve reference \"docker.io/library/x:latest\": docker.io/library/x:latest: not found";
        assert_eq!(pull_error("x"), expected);
    }

    #[test]
    fn patterns_and_names_are_bounded() {
        let (many, long) = ("x,".repeat(PATTERNS) + "nginx", "*".repeat(PATTERN_BYTES + 1));
        assert_eq!(image("nginx", false, patterns(&many)), Image::Present);
        assert_eq!(image("nginx", false, patterns(&long)), Image::Present);
        assert_eq!(image("nginx", false, patterns("x, nginx")), Image::Unpullable(pull_error("nginx")));
        let (fits, too_long) = ("a".repeat(247), "a".repeat(248));
        assert_eq!(image(&fits, false, patterns("")), Image::Present);
        let Image::Invalid(why) = image(&too_long, false, patterns("")) else { panic!("it is invalid") };
        assert!(why.ends_with("repository name must not be more than 255 characters"), "{why}");
    }

    #[test]
    fn what_is_no_reference_is_invalid() {
        let digest = format!("a@sha256:{}", "0".repeat(64));
        for name in
            ["nginx", "a/b-c__d/e:v1.2_3", "localhost:5000/x", "Registry.example.com/x:Y", "a--b", &digest]
        {
            assert_eq!(image(name, false, [].into_iter()), Image::Present, "{name}");
        }
        for name in
            ["UPPER", "a:", "a b", "a//b", "-a", "a-", "a___b", "a@sha256:00", "a:b/c:d:e", "http://x/y"]
        {
            assert!(matches!(image(name, false, [].into_iter()), Image::Invalid(_)), "{name}");
        }
        let Image::Invalid(why) = image("Foo", false, [].into_iter()) else { panic!("it is invalid") };
        let expected = "Failed to apply default image tag \"Foo\": couldn't parse image name \"Foo\": invalid reference format: repository name (library/Foo) must be lowercase";
        assert_eq!(why, expected);
    }

    #[test]
    fn pulls_are_tried_again_after_delays_that_double_up_to_five_minutes() {
        let check = |waited: u64, last: u64, next: u64| {
            let (found_last, found_next) = attempts(Duration::from_secs(waited));
            assert_eq!((found_last.as_secs(), found_next.as_secs()), (last, next), "{waited}");
        };
        check(0, 0, 10);
        check(9, 0, 10);
        check(10, 10, 30);
        check(30, 30, 70);
        check(149, 70, 150);
        check(310, 310, 610);
        check(609, 310, 610);
        check(610, 610, 910);
        check(30 * 86400, 2_591_710, 2_592_010);
    }
}
