//! English plurals of kinds: `Policy` is served as `policies`.
//!
//! Only the last word of a kind is inflected. If the rules get a kind wrong, `--plural` overrides them.

/// Words whose plural follows no rule.
const IRREGULAR: &[(&str, &str)] = &[
    ("person", "people"),
    ("child", "children"),
    ("man", "men"),
    ("woman", "women"),
    ("mouse", "mice"),
    ("goose", "geese"),
    ("foot", "feet"),
    ("tooth", "teeth"),
    ("ox", "oxen"),
    ("index", "indices"),
    ("matrix", "matrices"),
    ("vertex", "vertices"),
    ("appendix", "appendices"),
    ("criterion", "criteria"),
    ("phenomenon", "phenomena"),
    ("datum", "data"),
    ("medium", "media"),
    ("quiz", "quizzes"),
    ("hero", "heroes"),
    ("echo", "echoes"),
    ("potato", "potatoes"),
    ("torpedo", "torpedoes"),
    ("veto", "vetoes"),
    ("gas", "gases"),
    ("axis", "axes"),
];

/// Words that are their own plural.
const UNCHANGED: &[&str] = &[
    "data",
    "equipment",
    "hardware",
    "information",
    "media",
    "metadata",
    "news",
    "series",
    "sheep",
    "software",
    "species",
];

/// Words in `f` and `fe` whose plural is in `ves`.
const VES: &[(&str, &str)] = &[
    ("half", "halves"),
    ("knife", "knives"),
    ("leaf", "leaves"),
    ("life", "lives"),
    ("shelf", "shelves"),
    ("self", "selves"),
    ("wolf", "wolves"),
];

/// Returns the plural of a kind, in lower case.
///
/// ```
/// use setpoint_scaffold::plural;
/// assert_eq!(plural("NetworkPolicy"), "networkpolicies");
/// assert_eq!(plural("Proxy"), "proxies");
/// assert_eq!(plural("Index"), "indices");
/// ```
pub fn plural(kind: &str) -> String {
    let start = kind.rfind(|letter: char| letter.is_ascii_uppercase()).unwrap_or(0);
    let (before, last) = kind.split_at(start);
    before.to_lowercase() + &of_word(&last.to_lowercase())
}

fn of_word(word: &str) -> String {
    if UNCHANGED.contains(&word) {
        return word.to_owned();
    }
    let known = IRREGULAR.iter().chain(VES).find(|(singular, _)| *singular == word);
    if let Some((_, plural)) = known {
        return (*plural).to_owned();
    }
    let ends = |endings: &[&str]| endings.iter().any(|ending| word.ends_with(ending));
    let before_y = word.strip_suffix('y').filter(|rest| !rest.ends_with(['a', 'e', 'i', 'o', 'u']));
    match before_y {
        Some(rest) if !rest.is_empty() => format!("{rest}ies"),
        // Analysis, diagnosis; but not a basis of one syllable, which has no vowel before it.
        _ if ends(&["sis"]) && word.len() > 4 => format!("{}es", word.trim_end_matches("is")),
        _ if ends(&["s", "x", "z", "ch", "sh"]) => format!("{word}es"),
        _ => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plurals_are_those_of_english() {
        let check = |kind: &str, expected: &str| assert_eq!(plural(kind), expected, "{kind}");
        check("Widget", "widgets");
        check("Policy", "policies");
        check("NetworkPolicy", "networkpolicies");
        check("Gateway", "gateways");
        check("Proxy", "proxies");
        check("Bus", "buses");
        check("Status", "statuses");
        check("Box", "boxes");
        check("Batch", "batches");
        check("Mesh", "meshes");
        check("ServiceMesh", "servicemeshes");
        check("Ingress", "ingresses");
        check("Index", "indices");
        check("SearchIndex", "searchindices");
        check("Analysis", "analyses");
        check("Person", "people");
        check("Mouse", "mice");
        check("Database", "databases");
        check("Cache", "caches");
        check("Knife", "knives");
        check("Cliff", "cliffs");
        check("Quiz", "quizzes");
        check("Metadata", "metadata");
        check("TimeSeries", "timeseries");
        check("Y", "ys");
    }
}
