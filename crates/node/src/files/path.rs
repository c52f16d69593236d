//! Normal paths: absolute, without `.`, `..`, empty names and a trailing slash. The root is empty inside a tree and `/` in
//! a container. Pure.

/// Returns the normal form of a path as seen from a directory. The root is `/`.
pub(crate) fn normal(directory: &str, path: &str) -> String {
    let from = if path.starts_with('/') { "" } else { directory };
    let mut names: Vec<&str> = Vec::new();
    for name in from.split('/').chain(path.split('/')) {
        match name {
            "" | "." => {}
            ".." => _ = names.pop(),
            name => names.push(name),
        }
    }
    format!("/{}", names.join("/"))
}

/// Splits a path into its directory and its last name.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Returns the last name of a path.
pub(crate) fn name(path: &str) -> &str {
    split(path).1
}

/// Joins a path inside a tree and a name, either of which may be empty.
pub(crate) fn below(directory: &str, name: &str) -> String {
    match (directory, name) {
        ("", name) => name.to_owned(),
        (directory, "") => directory.to_owned(),
        (directory, name) => format!("{directory}/{name}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_made_normal() {
        let check = |path: &str, expected: &str| assert_eq!(normal("/a/b", path), expected, "{path}");
        check("c", "/a/b/c");
        check("../c//d/.", "/a/c/d");
        check("/x/", "/x");
        check("../../../..", "/");
        check("", "/a/b");
    }
}
