//! Enables and disables API versions: `--runtime-config`.

use std::collections::BTreeMap;

use crate::kind::Kind;

/// Enabled and disabled versions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuntimeConfig(BTreeMap<String, bool>);

/// An invalid setting.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RuntimeConfigError(String);

/// Settings for many versions at once, in the order in which they apply.
const GENERAL: [&str; 4] = ["api/all", "api/ga", "api/beta", "api/alpha"];

/// All groups of v1.34, with their versions.
const KNOWN: [(&str, &[&str]); 24] = [
    ("", &["v1"]),
    ("admissionregistration.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("apiextensions.k8s.io", &["v1", "v1beta1"]),
    ("apiregistration.k8s.io", &["v1", "v1beta1"]),
    ("apps", &["v1", "v1beta1", "v1beta2"]),
    ("authentication.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("authorization.k8s.io", &["v1", "v1beta1"]),
    ("autoscaling", &["v1", "v2", "v2beta1", "v2beta2"]),
    ("batch", &["v1", "v1beta1"]),
    ("certificates.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("coordination.k8s.io", &["v1", "v1beta1", "v1alpha2"]),
    ("discovery.k8s.io", &["v1", "v1beta1"]),
    ("events.k8s.io", &["v1", "v1beta1"]),
    ("extensions", &["v1beta1"]),
    ("flowcontrol.apiserver.k8s.io", &["v1", "v1beta1", "v1beta2", "v1beta3"]),
    ("internal.apiserver.k8s.io", &["v1alpha1"]),
    ("networking.k8s.io", &["v1", "v1beta1"]),
    ("node.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("policy", &["v1", "v1beta1"]),
    ("rbac.authorization.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("resource.k8s.io", &["v1", "v1beta1", "v1beta2", "v1alpha3"]),
    ("scheduling.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("storage.k8s.io", &["v1", "v1beta1", "v1alpha1"]),
    ("storagemigration.k8s.io", &["v1alpha1"]),
];

/// Versions that are only served if a setting enables them, as in v1.34. Other alpha and beta kinds are served while
/// their feature gate is on.
const DISABLED: [(&str, &str); 2] =
    [("admissionregistration.k8s.io", "v1alpha1"), ("admissionregistration.k8s.io", "v1beta1")];

impl RuntimeConfig {
    /// Parses settings such as `api/beta=true` and `batch/v1=false`; the default value is true.
    pub fn parse(settings: &[String]) -> Result<Self, RuntimeConfigError> {
        let mut config = BTreeMap::new();
        for setting in settings.iter().map(|setting| setting.trim()).filter(|setting| !setting.is_empty()) {
            let (key, value) = setting.split_once('=').unwrap_or((setting, "true"));
            let is_on = match value {
                "true" | "" => true,
                "false" => false,
                _ => return Err(RuntimeConfigError(format!("invalid value {key}={value}"))),
            };
            check(key)?;
            config.insert(key.to_owned(), is_on);
        }
        if config.len() == 1 && config.get("api/all") == Some(&false) {
            return Err(RuntimeConfigError("invalid key with only api/all=false".into()));
        }
        Ok(Self(config))
    }

    /// Returns the served kinds. Enabled kinds that do not exist here are skipped with a warning.
    #[must_use]
    pub fn apply(&self, kinds: Vec<Kind>) -> Vec<Kind> {
        for (key, _) in self.0.iter().filter(|(key, is_on)| **is_on && !GENERAL.contains(&key.as_str())) {
            if !kinds.iter().any(|kind| is_about(key, kind)) {
                tracing::warn!(
                    key,
                    "--runtime-config turns on an API version that this server does not have"
                );
            }
        }
        kinds.into_iter().filter(|kind| self.serves(kind)).collect()
    }

    fn serves(&self, kind: &Kind) -> bool {
        let mut is_on = !DISABLED.contains(&(kind.group.as_str(), kind.version.as_str()));
        for general in GENERAL.into_iter().filter(|general| is_general_for(general, &kind.version)) {
            is_on = self.0.get(general).copied().unwrap_or(is_on);
        }
        // The more specific setting comes later in key order.
        let exact = self.0.iter().filter(|(key, _)| is_about(key, kind));
        exact.fold(is_on, |_, (_, is_on)| *is_on)
    }
}

fn is_general_for(general: &str, version: &str) -> bool {
    match general {
        "api/alpha" => version.contains("alpha"),
        "api/beta" => version.contains("beta"),
        "api/ga" => !version.contains("alpha") && !version.contains("beta"),
        _ => true,
    }
}

/// Returns the group, version and resource of a setting; the core group may be called `api`.
fn parts(key: &str) -> Option<(&str, &str, Option<&str>)> {
    match *key.split('/').collect::<Vec<_>>() {
        [version] => Some(("", version, None)),
        ["api", version] => Some(("", version, None)),
        [group, version] => Some((group, version, None)),
        [group, version, resource] => Some((group, version, Some(resource))),
        _ => None,
    }
}

fn is_about(key: &str, kind: &Kind) -> bool {
    parts(key).is_some_and(|(group, version, resource)| {
        group == kind.group && version == kind.version && resource.is_none_or(|one| one == kind.plural)
    })
}

fn check(key: &str) -> Result<(), RuntimeConfigError> {
    if GENERAL.contains(&key) {
        return Ok(());
    }
    let bad = |why: String| Err(RuntimeConfigError(why));
    let Some((group, version, _)) = parts(key) else {
        return bad(format!("runtime-config invalid key {key}"));
    };
    match KNOWN.iter().find(|(known, _)| *known == group) {
        None => bad(format!("unknown api groups {group}")),
        Some((_, versions)) if !versions.contains(&version) => {
            bad(format!("group version {key} that has not been registered"))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;

    fn parse(settings: &[&str]) -> Result<RuntimeConfig, RuntimeConfigError> {
        RuntimeConfig::parse(&settings.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>())
    }

    fn served(settings: &[&str]) -> Vec<String> {
        served_of(crate::kinds::all(), settings)
    }

    fn served_of(kinds: Vec<Kind>, settings: &[&str]) -> Vec<String> {
        let kinds = parse(settings).unwrap().apply(kinds);
        kinds.iter().map(|kind| format!("{}/{}/{}", kind.group, kind.version, kind.plural)).collect()
    }

    #[test]
    fn versions_are_turned_off() {
        let all = served(&[]);
        assert!(all.contains(&"batch/v1/jobs".into()));
        let without = served(&["batch/v1=false"]);
        assert!(!without.contains(&"batch/v1/jobs".into()) && without.contains(&"/v1/pods".into()));
        let few = served(&["api/all=false", "v1=true"]);
        assert!(few.iter().all(|kind| kind.starts_with("/v1/")), "{few:?}");
        let one = served(&["batch/v1/jobs=false"]);
        assert!(!one.contains(&"batch/v1/jobs".into()) && one.contains(&"batch/v1/cronjobs".into()));
        assert_eq!(served(&["api/beta", "admissionregistration.k8s.io/v1beta1=true"]), all);
    }

    #[test]
    fn mutating_policies_need_a_setting_besides_their_gate() {
        let policies = |settings: &[&str]| {
            let kinds = crate::kinds::with(&Features::enabled_by(|name| name == "MutatingAdmissionPolicy"));
            let served = served_of(kinds, settings);
            served.into_iter().filter(|path| path.ends_with("/mutatingadmissionpolicies")).collect::<Vec<_>>()
        };
        let path =
            |version: &str| format!("admissionregistration.k8s.io/{version}/mutatingadmissionpolicies");
        assert_eq!(policies(&[]), [""; 0]);
        assert_eq!(policies(&["admissionregistration.k8s.io/v1beta1=true"]), [path("v1beta1")]);
        assert_eq!(policies(&["api/alpha=true"]), [path("v1alpha1")]);
        assert_eq!(policies(&["api/all=true"]), [path("v1beta1"), path("v1alpha1")]);
    }

    #[test]
    fn values_unknown_to_v1_34_are_rejected() {
        for bad in ["nope/v1", "batch/v7", "a/b/c/d", "batch/v1=maybe", "api/all=false"] {
            assert!(parse(&[bad]).is_err(), "{bad}");
        }
    }
}
