//! Names of operations, from which generators derive function names.

/// Converts a text to a part of a name: drops everything but letters and digits, and capitalizes what follows.
pub(super) fn valid(text: &str, mut capitalize: bool) -> String {
    let mut name = String::with_capacity(text.len());
    for (at, letter) in text.chars().enumerate() {
        let fits = letter.is_alphabetic() || letter == '_' || (at > 0 && letter.is_numeric());
        match (fits, capitalize) {
            (false, _) => capitalize = true,
            (true, false) => name.push(letter),
            (true, true) => {
                name.extend(letter.to_uppercase());
                capitalize = false;
            }
        }
    }
    name
}

fn short(group: &str) -> &str {
    if group.is_empty() { "core" } else { group.strip_suffix(".k8s.io").unwrap_or(group) }
}

/// Returns `Core`, `Apps`, `RbacAuthorization`.
pub(super) fn group_id(group: &str) -> String {
    valid(short(group), true)
}

/// Returns `core`, `apps`, `rbacAuthorization`.
pub(super) fn group_tag(group: &str) -> String {
    valid(short(group), false)
}

/// Returns `CoreV1`.
pub(super) fn version_id(group: &str, version: &str) -> String {
    format!("{}{}", group_id(group), valid(version, true))
}

/// Returns `core_v1`.
pub(super) fn version_tag(group: &str, version: &str) -> String {
    format!("{}_{}", group_tag(group), valid(version, false))
}

/// Returns `Status` for `status`.
pub(super) fn capitalized(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}

/// Returns `a Pod`, `an Ingress`, `Endpoints`: plurals have no article.
pub(super) fn with_article(kind: &str) -> String {
    if kind.ends_with('s') && !kind.ends_with("ss") {
        return kind.to_owned();
    }
    let article = if kind.starts_with(['A', 'E', 'I', 'O', 'U']) { "an" } else { "a" };
    format!("{article} {kind}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_letters_and_digits() {
        for (group, version, id, tag) in [
            ("", "v1", "CoreV1", "core_v1"),
            ("rbac.authorization.k8s.io", "v1", "RbacAuthorizationV1", "rbacAuthorization_v1"),
            ("my-group.example.com", "v1beta1", "MyGroupExampleComV1beta1", "myGroupExampleCom_v1beta1"),
        ] {
            assert_eq!((&*version_id(group, version), &*version_tag(group, version)), (id, tag));
        }
    }

    #[test]
    fn articles_fit_their_nouns() {
        let said = ["Pod", "Ingress", "Endpoints", "StorageClass", "Event"].map(with_article);
        assert_eq!(said, ["a Pod", "an Ingress", "Endpoints", "a StorageClass", "an Event"]);
    }
}
