//! A single role rule: what it allows, and which other rules it covers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::auth::Attributes;
use crate::request::ResourceTarget;

/// A rule of a role, either for resources (groups, resources, names) or for non-resource paths.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "words")]
    pub verbs: RuleValues,
    #[serde(deserialize_with = "words", skip_serializing_if = "RuleValues::is_empty")]
    pub api_groups: RuleValues,
    #[serde(deserialize_with = "words", skip_serializing_if = "RuleValues::is_empty")]
    pub resources: RuleValues,
    #[serde(deserialize_with = "words", skip_serializing_if = "RuleValues::is_empty")]
    pub resource_names: RuleValues,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "words",
        skip_serializing_if = "RuleValues::is_empty"
    )]
    pub paths: RuleValues,
}

/// The values of a rule's field.
pub type RuleValues = Vec<Box<str>>;

/// Matches every verb, group, resource or path.
const ALL: &str = "*";

/// Deserializes a list; null is empty.
fn words<'de, D: serde::Deserializer<'de>>(from: D) -> Result<RuleValues, D::Error> {
    Ok(Option::<RuleValues>::deserialize(from)?.unwrap_or_default())
}

fn has(words: &[Box<str>], word: &str) -> bool {
    words.iter().any(|own| &**own == word)
}

fn has_or_all(words: &[Box<str>], word: &str) -> bool {
    words.iter().any(|own| &**own == word || &**own == ALL)
}

/// Whether a path, possibly ending in `*`, includes another.
fn includes(own: &str, path: &str) -> bool {
    own == path || own.strip_suffix('*').is_some_and(|start| path.starts_with(start.trim_end_matches('*')))
}

impl Rule {
    /// Returns rules that allow everything: all resources and all paths.
    pub fn full_authority() -> [Self; 2] {
        let all = || vec![ALL.into()];
        let objects = Self { verbs: all(), api_groups: all(), resources: all(), ..Self::default() };
        [objects, Self { verbs: all(), paths: all(), ..Self::default() }]
    }

    /// Whether this rule allows a request.
    pub fn allows(&self, attributes: &Attributes<'_>) -> bool {
        has_or_all(&self.verbs, attributes.verb)
            && match attributes.resource {
                Some(target) => self.allows_target(target),
                None => self.paths.iter().any(|own| includes(own, attributes.path)),
            }
    }

    fn allows_target(&self, target: &ResourceTarget) -> bool {
        let name = target.named().unwrap_or_default();
        has_or_all(&self.api_groups, &target.group)
            && self.names_resource(&target.resource, target.subresource.as_deref().unwrap_or_default())
            && (self.resource_names.is_empty() || has(&self.resource_names, name))
    }

    /// Matches `pods`, `pods/log`, `*/scale` and `*`. Access reviews may pass `pods/log` as the resource.
    fn names_resource(&self, resource: &str, subresource: &str) -> bool {
        let part_of = |own: &str, of: &str| {
            own.strip_prefix(of).and_then(|rest| rest.strip_prefix('/')) == Some(subresource)
        };
        self.resources.iter().any(|own| match subresource {
            "" => &**own == ALL || &**own == resource,
            _ => &**own == ALL || part_of(own, ALL) || part_of(own, resource),
        })
    }

    /// Whether this rule covers one made by [`single`](Self::single).
    fn covers(&self, single: &Self) -> bool {
        let all_of = |own: &RuleValues, wanted: &RuleValues| wanted.iter().all(|word| has_or_all(own, word));
        let resource = |path: &str| {
            has_or_all(&self.resources, path)
                || path.split_once('/').is_some_and(|(_, part)| has(&self.resources, &format!("*/{part}")))
        };
        let names = self.resource_names.is_empty()
            || !single.resource_names.is_empty()
                && single.resource_names.iter().all(|name| has(&self.resource_names, name));
        all_of(&self.verbs, &single.verbs)
            && all_of(&self.api_groups, &single.api_groups)
            && single.resources.iter().all(|path| resource(path))
            && names
            && single.paths.iter().all(|path| self.paths.iter().any(|own| includes(own, path)))
    }

    fn words(&self) -> usize {
        let all = [&self.verbs, &self.api_groups, &self.resources, &self.resource_names, &self.paths];
        all.iter().map(|words| words.len()).sum()
    }

    /// Returns the number of rules that [`single`](Self::single) makes: a product, so a rule with a few thousand
    /// values can expand to billions.
    fn breadth(&self) -> usize {
        let objects = [&self.api_groups, &self.resources, &self.verbs];
        let objects = objects.iter().fold(1_usize, |product, words| product.saturating_mul(words.len()));
        let objects = objects.saturating_mul(self.resource_names.len().max(1));
        objects.saturating_add(self.paths.len().saturating_mul(self.verbs.len()))
    }

    /// Expands the rule into rules with one verb, one group, one resource and one name each.
    fn single(&self) -> impl Iterator<Item = Self> {
        let one = |word: &str| -> RuleValues { vec![word.into()] };
        let verbs =
            move |rule: Self| self.verbs.iter().map(move |verb| Self { verbs: one(verb), ..rule.clone() });
        let names: Vec<RuleValues> = match self.resource_names.as_slice() {
            [] => vec![RuleValues::new()],
            names => names.iter().map(|name| one(name)).collect(),
        };
        let groups =
            self.api_groups.iter().map(move |group| Self { api_groups: one(group), ..Self::default() });
        let resources = groups.flat_map(move |rule| {
            self.resources.iter().map(move |resource| Self { resources: one(resource), ..rule.clone() })
        });
        let objects = resources.flat_map(verbs).flat_map(move |rule| {
            let names = names.clone().into_iter();
            names.map(move |resource_names| Self { resource_names, ..rule.clone() })
        });
        let paths = self.paths.iter().map(move |path| Self { paths: one(path), ..Self::default() });
        objects.chain(paths.flat_map(verbs))
    }
}

/// Maximum number of string comparisons per role: at about 5 ns each, half a second. The bootstrap roles need a
/// thousandth of that.
const MAX_COMPARISONS: usize = 100_000_000;
/// Maximum number of missing rights to report. A single rule takes about 300 bytes: 3 MB.
const MAX_MISSING: usize = 10_000;

/// The error for too many rights to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the rules stand for {breadth} combinations of verbs, groups, resources and names, too many to compare with \
     {held} rules that are held"
)]
pub struct TooBroad {
    breadth: usize,
    held: usize,
}

/// Rights that are not held, as single rules.
#[derive(Debug, Default)]
pub struct Missing {
    pub rules: Vec<Rule>,
    /// Whether the list was truncated.
    pub is_cut: bool,
}

/// Returns what `wanted` allows and `held` does not.
pub fn missing(held: &[Rule], wanted: &[Rule]) -> Result<Missing, TooBroad> {
    check_breadth(held, wanted.iter().map(Rule::words).sum())?;
    // Usually a rule is held as a whole.
    let is_held = |wanted: &&Rule| held.iter().any(|rule| rule.covers(wanted));
    let wanted: Vec<&Rule> = wanted.iter().filter(|rule| !is_held(rule)).collect();
    check_breadth(held, wanted.iter().fold(0, |sum, rule| sum.saturating_add(rule.breadth())))?;
    let single = wanted.into_iter().flat_map(Rule::single);
    let mut single = single.filter(|single| !held.iter().any(|rule| rule.covers(single)));
    let rules = single.by_ref().take(MAX_MISSING).collect();
    Ok(Missing { rules, is_cut: single.next().is_some() })
}

/// Limits the number of string comparisons.
fn check_breadth(held: &[Rule], breadth: usize) -> Result<(), TooBroad> {
    let words: usize = held.iter().map(Rule::words).sum();
    match breadth.saturating_mul(words.max(1)) <= MAX_COMPARISONS {
        true => Ok(()),
        false => Err(TooBroad { breadth, held: held.len() }),
    }
}

/// Compacts rules: merges the rules for one resource into one rule with all their verbs.
pub fn compact(rules: Vec<Rule>) -> Vec<Rule> {
    let mut compact: Vec<Rule> = Vec::new();
    let mut places: BTreeMap<Rule, usize> = BTreeMap::new();
    for mut rule in rules {
        if rule.api_groups.len() != 1 || rule.resources.len() != 1 || !rule.paths.is_empty() {
            compact.push(rule);
            continue;
        }
        let about = Rule { verbs: RuleValues::new(), ..rule.clone() };
        match places.get(&about) {
            Some(at) => compact[*at].verbs.append(&mut rule.verbs),
            None => {
                places.insert(about, compact.len());
                compact.push(rule);
            }
        }
    }
    compact
}

/// Formats a rule for messages: `{APIGroups:[""], Resources:["pods"], Verbs:["get" "list"]}`.
impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("APIGroups", &self.api_groups),
            ("Resources", &self.resources),
            ("NonResourceURLs", &self.paths),
            ("ResourceNames", &self.resource_names),
            ("Verbs", &self.verbs),
        ];
        let shown = parts.iter().filter(|(_, words)| !words.is_empty());
        let shown: Vec<String> = shown.map(|(name, words)| format!("{name}:{}", quoted(words))).collect();
        write!(f, "{{{}}}", shown.join(", "))
    }
}

/// Formats a list: `["a" "b"]`.
pub fn quoted<S: AsRef<str>>(words: &[S]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("{:?}", word.as_ref())).collect();
    format!("[{}]", words.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::User;

    /// Parses `verbs groups resources [names]`, or `verbs paths`; values are separated by commas, `core` is "".
    fn rule(text: &str) -> Rule {
        let words = |text: &str| text.split(',').map(|w| if w == "core" { "" } else { w }.into()).collect();
        let parts: Vec<&str> = text.split(' ').collect();
        match parts[..] {
            [verbs, paths] => Rule { verbs: words(verbs), paths: words(paths), ..Rule::default() },
            [verbs, groups, resources, ref names @ ..] => Rule {
                verbs: words(verbs),
                api_groups: words(groups),
                resources: words(resources),
                resource_names: names.first().map(|names| words(names)).unwrap_or_default(),
                paths: RuleValues::new(),
            },
            _ => panic!("{text}"),
        }
    }

    fn target(group: &str, resource: &str, name: &str) -> ResourceTarget {
        let (resource, subresource) = match resource.split_once('/') {
            Some((resource, part)) => (resource, Some(part.to_owned())),
            None => (resource, None),
        };
        ResourceTarget {
            group: group.into(),
            resource: resource.into(),
            subresource,
            name: Some(name.to_owned()).filter(|name| !name.is_empty()),
            ..ResourceTarget::default()
        }
    }

    #[track_caller]
    fn check(text: &str, verb: &str, (group, resource, name): (&str, &str, &str), expected: bool) {
        let (user, target) = (User::default(), target(group, resource, name));
        let attributes = Attributes { user: &user, verb, path: "", resource: Some(&target) };
        assert_eq!(rule(text).allows(&attributes), expected, "{text}");
    }

    #[test]
    fn a_rule_allows_the_listed_verbs_and_resources() {
        check("get core pods", "get", ("", "pods", "a"), true);
        check("get core pods", "list", ("", "pods", ""), false);
        check("get core pods", "get", ("apps", "pods", "a"), false);
        check("get core pods", "get", ("", "pods/log", "a"), false);
        check("get core pods/log", "get", ("", "pods/log", "a"), true);
        check("get core pods/log", "get", ("", "pods", "a"), false);
        check("get * */scale", "get", ("apps", "deployments/scale", "a"), true);
        check("get * */scale", "get", ("apps", "deployments", "a"), false);
        check("* * *", "update", ("apps", "deployments/scale", "a"), true);
        check("get core pods a", "get", ("", "pods", "a"), true);
        check("get core pods a", "get", ("", "pods", "b"), false);
        check("list core pods a", "list", ("", "pods", ""), false);
        check("get /x", "get", ("", "pods", "a"), false);
    }

    #[test]
    fn a_resource_and_its_subresource_can_be_given_as_one_word() {
        let allows = |text: &str| {
            let target = ResourceTarget { resource: "pods/resize".into(), ..ResourceTarget::default() };
            let user = User::default();
            rule(text).allows(&Attributes { user: &user, verb: "get", path: "", resource: Some(&target) })
        };
        assert!(allows("get core pods/resize") && allows("get core *"));
        assert!(!allows("get core pods") && !allows("get core */resize"));
    }

    #[test]
    fn a_rule_about_paths_may_end_in_a_star() {
        let user = User::default();
        for (text, path, expected) in [
            ("get /healthz", "/healthz", true),
            ("get /healthz", "/healthz/ping", false),
            ("get /api/*", "/api/v1", true),
            ("get /api/*", "/api", false),
            ("get *", "/anything", true),
            ("get * * ", "/anything", false),
        ] {
            let attributes = Attributes { user: &user, verb: "get", path, resource: None };
            assert_eq!(rule(text.trim_end()).allows(&attributes), expected, "{text} {path}");
        }
    }

    #[test]
    fn missing_permissions_are_summarized() {
        let wanted = [rule("get,list,watch core pods,secrets"), rule("get /metrics")];
        let held = [rule("* core pods"), rule("list core secrets")];
        let missing: Vec<String> =
            compact(missing(&held, &wanted).unwrap().rules).iter().map(Rule::to_string).collect();
        assert_eq!(
            missing,
            [
                r#"{APIGroups:[""], Resources:["secrets"], Verbs:["get" "watch"]}"#,
                r#"{NonResourceURLs:["/metrics"], Verbs:["get"]}"#
            ]
        );
    }

    #[test]
    fn a_rule_covers_no_more_than_it_allows() {
        for (held, wanted, covered) in [
            ("* * *", "get apps deployments/scale", true),
            ("* * *", "get /x", false),
            ("get * */scale", "get apps deployments/scale", true),
            ("get core pods a", "get core pods", false),
            ("get core pods", "get core pods a", true),
            ("get core pods a", "get core pods b", false),
            ("get core pods", "* core pods", false),
            ("get core pods", "get * pods", false),
            ("get /api/*", "get /api/v1", true),
            ("get /api/*", "get /api/*", true),
            ("get /api", "get /api/*", false),
        ] {
            assert_eq!(
                missing(&[rule(held)], &[rule(wanted)]).unwrap().rules.is_empty(),
                covered,
                "{held}: {wanted}"
            );
        }
    }
}
