//! The ClusterServiceVersion: its name and version, what catalogs show, install modes, and examples.

use std::collections::BTreeSet;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use semver::Version;
use serde_json::Value;

use super::{Api, Findings, is_subdomain, list, text};

const CAPABILITIES: &[&str] =
    &["Basic Install", "Seamless Upgrades", "Full Lifecycle", "Deep Insights", "Auto Pilot"];
const CATEGORIES: &[&str] = &[
    "AI/Machine Learning",
    "Application Runtime",
    "Big Data",
    "Cloud Provider",
    "Database",
    "Developer Tools",
    "Drivers and plugins",
    "Integration & Delivery",
    "Logging & Tracing",
    "Modernization & Migration",
    "Monitoring",
    "Networking",
    "Observability",
    "OpenShift Optional",
    "Security",
    "Storage",
    "Streaming & Messaging",
];
const MEDIA_TYPES: &[&str] = &["image/gif", "image/jpeg", "image/png", "image/svg+xml"];
const INSTALL_MODES: &[&str] = &["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

pub(super) fn check(csv: &Value, provided: &BTreeSet<(String, Api)>, findings: &mut Findings<'_>) {
    let api_version = text(&csv["apiVersion"]);
    findings.expect(api_version == "operators.coreos.com/v1alpha1", || {
        format!("apiVersion: expected operators.coreos.com/v1alpha1, not {api_version:?}")
    });
    names(csv, findings);
    shown(csv, findings);
    annotations(csv, findings);
    install_modes(&csv["spec"]["installModes"], findings);
    owned(csv, provided, findings);
    examples(csv, findings);
}

/// Splits `operator.v1.2.3`.
fn name_and_version(name: &str) -> Option<(&str, Version)> {
    let (operator, version) = name.split_once('.')?;
    let version = Version::parse(version.trim_start_matches('v')).ok()?;
    is_subdomain(name).then_some((operator, version))
}

fn names(csv: &Value, findings: &mut Findings<'_>) {
    let (name, given) = (text(&csv["metadata"]["name"]), text(&csv["spec"]["version"]));
    let version = Version::parse(given).ok();
    findings.expect(version.is_some(), || {
        format!("spec.version: expected a semantic version such as 0.1.0, not {given:?}")
    });
    if version == Some(Version::new(0, 0, 0)) {
        findings.error("spec.version: expected a version greater than 0.0.0");
    }
    match name_and_version(name) {
        None => findings.error(format!("metadata.name: expected NAME.vX.Y.Z, not {name:?}")),
        Some((_, of_name)) => {
            let is_same = version.as_ref().is_none_or(|version| *version == of_name);
            findings.expect(is_same, || {
                format!("metadata.name: expected the version of spec.version, {given}, not {of_name}")
            });
        }
    }
    let replaces = &csv["spec"]["replaces"];
    if !replaces.is_null() {
        let replaces = text(replaces);
        match (name_and_version(replaces), version) {
            (None, _) => findings.error(format!("spec.replaces: expected NAME.vX.Y.Z, not {replaces:?}")),
            (Some((_, old)), Some(version)) => findings.expect(old < version, || {
                format!("spec.replaces: expected a version before {version}, not {old}")
            }),
            _ => {}
        }
    }
    let minimum = text(&csv["spec"]["minKubeVersion"]);
    if minimum.is_empty() {
        findings.warning("spec.minKubeVersion: expected the oldest Kubernetes that the operator works with, such as 1.28.0");
    } else {
        findings.expect(Version::parse(minimum.trim_start_matches('v')).is_ok(), || {
            format!("spec.minKubeVersion: expected a version such as 1.28.0, not {minimum:?}")
        });
    }
}

/// What catalogs show.
fn shown(csv: &Value, findings: &mut Findings<'_>) {
    let spec = &csv["spec"];
    findings.expect(!text(&spec["displayName"]).is_empty(), || {
        "spec.displayName: expected a name for people".into()
    });
    if text(&spec["description"]).trim().is_empty() {
        findings.warning("spec.description: expected what the operator does");
    }
    findings.expect(!text(&spec["provider"]["name"]).is_empty(), || {
        "spec.provider.name: expected who makes the operator".into()
    });
    for (nth, maintainer) in list(&spec["maintainers"]).enumerate() {
        let (name, email) = (text(&maintainer["name"]), text(&maintainer["email"]));
        findings.expect(!name.is_empty() && is_email(email), || {
            format!(
                "spec.maintainers[{nth}]: expected a name and an e-mail address, not {name:?} and {email:?}"
            )
        });
    }
    for (nth, link) in list(&spec["links"]).enumerate() {
        let (name, url) = (text(&link["name"]), text(&link["url"]));
        findings.expect(!name.is_empty() && is_url(url), || {
            format!("spec.links[{nth}]: expected a name and a URL, not {name:?} and {url:?}")
        });
    }
    let icons: Vec<&Value> = list(&spec["icon"]).collect();
    match icons[..] {
        [] => findings.warning("spec.icon: expected one icon"),
        [icon] => check_icon(icon, findings),
        _ => findings.error(format!("spec.icon: expected one icon, not {}", icons.len())),
    }
}

fn check_icon(icon: &Value, findings: &mut Findings<'_>) {
    let (media_type, data) = (text(&icon["mediatype"]), text(&icon["base64data"]));
    findings.expect(MEDIA_TYPES.contains(&media_type), || {
        format!("spec.icon[0].mediatype: expected one of {}, not {media_type:?}", MEDIA_TYPES.join(", "))
    });
    let is_data = !data.is_empty() && STANDARD.decode(data.split_whitespace().collect::<String>()).is_ok();
    findings.expect(is_data, || "spec.icon[0].base64data: expected an image in base64".into());
}

fn is_email(text: &str) -> bool {
    let fits =
        |part: &str| !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || "@<>,;".contains(c));
    text.split_once('@').is_some_and(|(user, host)| fits(user) && fits(host))
}

fn is_url(text: &str) -> bool {
    let rest = text.split_once("://").filter(|(scheme, _)| scheme.chars().all(|c| c.is_ascii_alphanumeric()));
    rest.is_some_and(|(_, rest)| !rest.is_empty() && !text.contains(char::is_whitespace))
}

fn annotations(csv: &Value, findings: &mut Findings<'_>) {
    let annotations = &csv["metadata"]["annotations"];
    if let Some(level) = annotations["capabilities"].as_str() {
        findings.expect(CAPABILITIES.contains(&level), || {
            format!(
                "metadata.annotations.capabilities: expected one of {}, not {level:?}",
                CAPABILITIES.join(", ")
            )
        });
    }
    for category in
        annotations["categories"].as_str().into_iter().flat_map(|all| all.split(',')).map(str::trim)
    {
        findings.expect(CATEGORIES.contains(&category), || {
            format!(
                "metadata.annotations.categories: expected some of {}, not {category:?}",
                CATEGORIES.join(", ")
            )
        });
    }
    let unknown = annotations.as_object().into_iter().flatten().map(|(name, _)| name);
    for name in unknown {
        // Close to one that OLM knows, but not the same.
        let known =
            ["olm.examples", "alm-examples", "olm.skipRange", "capabilities", "categories", "containerImage"];
        let close = known.iter().find(|one| one.eq_ignore_ascii_case(name) && *one != name);
        if let Some(close) = close {
            findings.error(format!("metadata.annotations.{name}: expected {close}"));
        }
    }
}

fn install_modes(modes: &Value, findings: &mut Findings<'_>) {
    let mut seen = BTreeSet::new();
    let mut supported = false;
    for (nth, mode) in list(modes).enumerate() {
        let name = text(&mode["type"]);
        findings.expect(INSTALL_MODES.contains(&name), || {
            format!(
                "spec.installModes[{nth}].type: expected one of {}, not {name:?}",
                INSTALL_MODES.join(", ")
            )
        });
        findings.expect(seen.insert(name), || {
            format!("spec.installModes[{nth}]: there are two of the type {name}")
        });
        findings.expect(mode["supported"].is_boolean(), || {
            format!("spec.installModes[{nth}].supported: expected true or false")
        });
        supported |= mode["supported"] == true;
    }
    match seen.is_empty() {
        true => findings.error("spec.installModes: expected the namespaces that the operator can watch"),
        false => findings.expect(supported, || "spec.installModes: expected one that is supported".into()),
    }
}

/// Returns the kinds that the operator says it owns, with the names of their CRDs.
fn owned_apis(csv: &Value) -> Vec<(String, Api)> {
    let owned = list(&csv["spec"]["customresourcedefinitions"]["owned"]);
    owned
        .map(|one| {
            let name = text(&one["name"]);
            let group = name.split_once('.').map_or("", |(_, group)| group).to_owned();
            let (version, kind) = (text(&one["version"]).to_owned(), text(&one["kind"]).to_owned());
            (name.to_owned(), Api { group, version, kind })
        })
        .collect()
}

fn owned(csv: &Value, provided: &BTreeSet<(String, Api)>, findings: &mut Findings<'_>) {
    let field = "spec.customresourcedefinitions.owned";
    let owned = owned_apis(csv);
    for (nth, (name, api)) in owned.iter().enumerate() {
        findings.expect(name.contains('.'), || {
            format!("{field}[{nth}].name: expected PLURAL.GROUP, not {name:?}")
        });
        findings.expect(provided.contains(&(name.clone(), api.clone())), || {
            format!("{field}[{nth}]: expected a CRD {name} with {api} in the bundle")
        });
        findings.expect(!owned[..nth].contains(&(name.clone(), api.clone())), || {
            format!("{field}[{nth}]: {api} is there twice")
        });
        let entry = &csv["spec"]["customresourcedefinitions"]["owned"][nth];
        for described in ["displayName", "description"] {
            if text(&entry[described]).is_empty() {
                findings.warning(format!("{field}[{nth}].{described}: expected a text for people"));
            }
        }
    }
    for (_, api) in provided.iter().filter(|one| !owned.contains(one)) {
        findings.warning(format!("{field}: expected {api}, whose CRD is in the bundle"));
    }
}

fn examples(csv: &Value, findings: &mut Findings<'_>) {
    let field = "metadata.annotations.alm-examples";
    let Some(examples) = csv["metadata"]["annotations"]["alm-examples"].as_str() else {
        return findings.warning(format!("{field}: expected an example of each owned kind"));
    };
    let examples: Vec<Value> = match serde_json::from_str(examples) {
        Ok(examples) => examples,
        Err(error) => return findings.error(format!("{field}: expected a list of objects in JSON: {error}")),
    };
    let owned: BTreeSet<Api> = owned_apis(csv).into_iter().map(|(_, api)| api).collect();
    let mut shown = BTreeSet::new();
    for (nth, example) in examples.iter().enumerate() {
        let (group, version) =
            text(&example["apiVersion"]).split_once('/').unwrap_or(("", text(&example["apiVersion"])));
        let api = Api { group: group.into(), version: version.into(), kind: text(&example["kind"]).into() };
        findings
            .expect(owned.contains(&api), || format!("{field}[{nth}]: expected an owned kind, not {api}"));
        findings.expect(is_subdomain(text(&example["metadata"]["name"])), || {
            format!("{field}[{nth}].metadata.name: expected a name")
        });
        shown.insert(api);
    }
    for api in owned.difference(&shown) {
        findings.warning(format!("{field}: expected an example of {api}"));
    }
}
