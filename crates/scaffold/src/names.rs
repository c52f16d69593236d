//! Which names are valid, and the names that follow from others.
//!
//! Names end up in file names, in source code and in YAML without quotes, so everything that is not clearly a name is
//! rejected, with the flag it came from and what was expected.

/// A value that is not valid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: expected {expected}, not {given:?}")]
pub struct Invalid {
    /// The flag or the field of the description.
    pub field: String,
    /// What was expected.
    pub expected: String,
    /// What was given.
    pub given: String,
}

impl Invalid {
    pub(crate) fn new(field: &str, expected: impl Into<String>, given: &str) -> Self {
        Self { field: field.to_owned(), expected: expected.into(), given: given.to_owned() }
    }
}

/// The longest name of a project: its namespace, `NAME-system`, is a label of at most 63 characters.
const LONGEST_NAME: usize = 50;
/// The longest label of DNS, and the longest kind.
const LONGEST_LABEL: usize = 63;
/// The longest API group: the name of a CRD is `PLURAL.GROUP`, of at most 253 characters.
const LONGEST_GROUP: usize = 180;

/// Words of Rust that cannot be the name of a module.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn",
    "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "unsafe", "unsized", "use", "virtual",
    "where", "while", "yield",
];
/// Modules that a generated Rust project has already.
const MODULES: &[&str] = &["lib", "main", "manifests", "operator"];
/// Names of crates that cargo rejects or that generated code uses.
const CRATES: &[&str] = &[
    "alloc",
    "anyhow",
    "build",
    "core",
    "deps",
    "examples",
    "k8s-openapi",
    "kube",
    "proc-macro",
    "schemars",
    "serde",
    "serde-json",
    "setpoint",
    "setpoint-sim",
    "std",
    "test",
    "tokio",
    "tracing-subscriber",
];
/// Types that generated Rust code uses under their own name.
const TYPES: &[&str] = &[
    "Box",
    "Cached",
    "Clone",
    "ConfigMap",
    "Context",
    "Controller",
    "CustomResource",
    "Debug",
    "Default",
    "Denied",
    "Deserialize",
    "Err",
    "EventType",
    "JsonSchema",
    "Key",
    "Kind",
    "Manager",
    "None",
    "Ok",
    "Option",
    "Outcome",
    "PartialEq",
    "ReconcileError",
    "Result",
    "Runnable",
    "Self",
    "Send",
    "Serialize",
    "Some",
    "String",
    "Sync",
    "Vec",
    "Versions",
    "Webhooks",
];

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(inner)
        && !text.ends_with('-')
        && text.len() <= LONGEST_LABEL
}

/// Checks the name of a project.
pub(crate) fn project(field: &str, name: &str, is_crate: bool) -> Result<(), Invalid> {
    if !is_label(name) || name.len() > LONGEST_NAME || name.contains("--") {
        let expected = format!(
            "up to {LONGEST_NAME} lower-case letters, digits and single hyphens, starting with a letter"
        );
        return Err(Invalid::new(field, expected, name));
    }
    if is_crate && (CRATES.contains(&name) || KEYWORDS.contains(&name)) {
        return Err(Invalid::new(field, "a name that no other crate has", name));
    }
    Ok(())
}

/// Checks a kind.
pub(crate) fn kind(field: &str, kind: &str) -> Result<(), Invalid> {
    let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
        && kind.chars().all(|c| c.is_ascii_alphanumeric())
        && kind.len() <= LONGEST_LABEL;
    if !is_kind {
        return Err(Invalid::new(field, "a name such as Database", kind));
    }
    let is_of_another = |suffix: &str| kind.strip_suffix(suffix).is_some_and(|rest| !rest.is_empty());
    if is_of_another("Spec") || is_of_another("Status") || is_of_another("List") {
        return Err(Invalid::new(field, "a kind that does not end with Spec, Status or List", kind));
    }
    if TYPES.contains(&kind) {
        return Err(Invalid::new(field, "a kind that the generated code does not use", kind));
    }
    Ok(())
}

/// Checks an API group.
pub(crate) fn group(field: &str, group: &str) -> Result<(), Invalid> {
    let is_group =
        group.contains('.') && group.split('.').all(is_group_label) && group.len() <= LONGEST_GROUP;
    if !is_group {
        return Err(Invalid::new(field, "a domain such as example.com", group));
    }
    let is_protected = [".k8s.io", ".kubernetes.io"].iter().any(|suffix| group.ends_with(suffix))
        || ["k8s.io", "kubernetes.io"].contains(&group);
    if is_protected {
        return Err(Invalid::new(field, "a domain of your own: k8s.io belongs to Kubernetes", group));
    }
    Ok(())
}

/// A label of a group may start with a digit.
fn is_group_label(text: &str) -> bool {
    is_label(text) || (text.starts_with(|c: char| c.is_ascii_digit()) && is_label(&format!("a{text}")))
}

/// Checks a plural.
pub(crate) fn plural(field: &str, plural: &str) -> Result<(), Invalid> {
    let is_plural = is_label(plural) && !plural.contains('-');
    match is_plural {
        true => Ok(()),
        false => Err(Invalid::new(field, "lower-case letters and digits, such as databases", plural)),
    }
}

/// Checks a version of an API.
pub(crate) fn version(field: &str, version: &str) -> Result<(), Invalid> {
    match parsed(version) {
        Some(_) => Ok(()),
        None => Err(Invalid::new(field, "a version such as v1, v2beta1 or v1alpha1", version)),
    }
}

/// Returns the parts of a version: the major number, the stage and its number.
fn parsed(version: &str) -> Option<(u32, Option<(&str, u32)>)> {
    let number = |text: &str| -> Option<u32> {
        let is_number = !text.starts_with('0') && text.chars().all(|c| c.is_ascii_digit());
        is_number.then(|| text.parse().ok()).flatten()
    };
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, stage) = rest.split_at(end);
    let major = number(major)?;
    if stage.is_empty() {
        return Some((major, None));
    }
    let name = ["alpha", "beta"].into_iter().find(|name| stage.starts_with(name))?;
    Some((major, Some((name, number(&stage[name.len()..])?))))
}

/// Checks a container image.
pub(crate) fn image(field: &str, image: &str) -> Result<(), Invalid> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let is_image = image.starts_with(|c: char| c.is_ascii_alphanumeric())
        && image.chars().all(fits)
        && image.len() <= 255;
    match is_image {
        true => Ok(()),
        false => Err(Invalid::new(field, "an image such as registry.example.com/operator:0.1.0", image)),
    }
}

/// Splits an image into its repository and its tag or digest.
pub(crate) fn repository_and_tag(image: &str) -> (&str, &str) {
    if let Some((repository, digest)) = image.split_once('@') {
        return (repository, digest);
    }
    match image.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) {
        Some((repository, tag)) => (repository, tag),
        None => (image, "latest"),
    }
}

/// Converts `web-shop` to `WebShop`.
pub(crate) fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_uppercase() + rest
    };
    name.split('-').map(capital).collect()
}

/// Returns the kind that a project is probably for: `database-operator` is for the kind Database.
pub fn kind_of_project(name: &str) -> String {
    camel(name.strip_suffix("-operator").unwrap_or(name))
}

/// Converts `WebShop` to `web_shop`, and `HTTPRoute` to `http_route`.
pub(crate) fn snake(kind: &str) -> String {
    let letters: Vec<char> = kind.chars().collect();
    let mut snake = String::new();
    for (nth, letter) in letters.iter().enumerate() {
        let after_lower = nth > 0 && !letters[nth - 1].is_ascii_uppercase();
        let before_lower = nth > 0 && letters.get(nth + 1).is_some_and(|next| next.is_ascii_lowercase());
        if letter.is_ascii_uppercase() && (after_lower || before_lower) {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the name of the Rust module for a kind.
pub(crate) fn module(kind: &str) -> String {
    let name = snake(kind);
    match KEYWORDS.contains(&name.as_str()) || MODULES.contains(&name.as_str()) {
        true => name + "_kind",
        false => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_valid_are_rejected_with_the_flag() {
        let check = |result: Result<(), Invalid>, expected: &str| {
            let message = result.err().map(|error| error.to_string()).unwrap_or_default();
            assert!(message.starts_with(expected) && message.is_empty() == expected.is_empty(), "{message}");
        };
        check(project("NAME", "web-shop", true), "");
        for bad in ["Web", "", "1web", "web-", "a--b", "../web", "web/x", "web shop", &"a".repeat(51)] {
            check(project("NAME", bad, true), "NAME: expected up to 50 lower-case");
        }
        for taken in ["test", "setpoint", "std", "loop"] {
            check(project("NAME", taken, true), "NAME: expected a name that no other crate has");
            check(project("NAME", taken, false), "");
        }
        check(kind("--kind", "WebShop"), "");
        for bad in ["shop", "Web-Shop", "Web Shop", "", "Wéb", "../Web"] {
            check(kind("--kind", bad), "--kind: expected a name such as Database, not");
        }
        check(kind("--kind", "ShopSpec"), "--kind: expected a kind that does not end with Spec");
        check(kind("--kind", "Context"), "--kind: expected a kind that the generated code does not use");
        check(group("--group", "data.example.org"), "");
        for bad in ["example", "Example.com", "example..com", ".com", "a_b.com", "../x.y"] {
            check(group("--group", bad), "--group: expected a domain such as example.com, not");
        }
        check(group("--group", "shop.k8s.io"), "--group: expected a domain of your own");
        check(plural("--plural", "people"), "");
        for bad in ["People", "web-shops", "", "../people"] {
            check(plural("--plural", bad), "--plural: expected lower-case letters and digits");
        }
        for good in ["v1", "v12", "v1alpha1", "v2beta11"] {
            check(version("--version", good), "");
        }
        for bad in ["1", "v0", "v1gamma1", "v1alpha", "v1alpha0", "v1.2", "v", "v01", "../v1"] {
            check(version("--version", bad), "--version: expected a version such as v1");
        }
        check(image("--image", "localhost:5000/a/b:1@sha256:00"), "");
        check(image("--image", "a b"), "--image: expected an image such as");
    }

    #[test]
    fn names_follow_from_others() {
        assert_eq!(kind_of_project("web-shop-operator"), "WebShop");
        assert_eq!(
            (snake("WebShop"), snake("HTTPRoute"), snake("DB")),
            ("web_shop".into(), "http_route".into(), "db".into())
        );
        assert_eq!(
            (module("Type"), module("Main"), module("Shop")),
            ("type_kind".into(), "main_kind".into(), "shop".into())
        );
        assert_eq!(repository_and_tag("localhost:5000/a"), ("localhost:5000/a", "latest"));
        assert_eq!(repository_and_tag("a:1"), ("a", "1"));
    }
}
