//! Rules to relax because the old object already violates them.
//!
//! Rules became stricter over time; an object stored under looser rules can still be updated.

use serde_json::Value;

use super::{annotations, security};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::kinds::pod::CONTAINER_LISTS;
use crate::kinds::resources::amounts;
use crate::validation::labels::{self, Values};
use crate::validation::{paths, resources};

pub(in crate::kinds::pod) struct Rules {
    /// Whether this is a pod, not a pod template.
    pub(super) is_pod: bool,
    pub(super) allow_broken_pages: bool,
    pub(super) allow_bad_deletion_cost: bool,
    pub(super) allow_distant_token_paths: bool,
    pub(super) allow_host_sysctls: bool,
    pub(super) allow_user_namespace_devices: bool,
    pub(super) allow_any_selinux_change: bool,
    pub(super) allow_bad_spread_selectors: bool,
    /// Spread constraints may repeat a label key in their selector, as allowed before v1.34.
    pub(super) allow_repeated_spread_keys: bool,
    pub(super) affinity_values: Values,
    pub(super) node_affinity_values: Values,
}

impl Rules {
    /// The rules for a new pod.
    pub(in crate::kinds::pod) const POD: Self = Self { is_pod: true, ..Self::TEMPLATE };

    /// The rules for a new template.
    pub(in crate::kinds::pod) const TEMPLATE: Self = Self {
        is_pod: false,
        allow_broken_pages: false,
        allow_bad_deletion_cost: false,
        allow_distant_token_paths: false,
        allow_host_sysctls: false,
        allow_user_namespace_devices: false,
        allow_any_selinux_change: false,
        allow_bad_spread_selectors: false,
        allow_repeated_spread_keys: false,
        affinity_values: Values::Checked,
        node_affinity_values: Values::Checked,
    };

    /// Returns the rules for an update of this old pod or template.
    pub(in crate::kinds::pod) fn towards(old: &Value, is_pod: bool) -> Self {
        let spec = old.at("spec");
        if spec.is_null() {
            return if is_pod { Self::POD } else { Self::TEMPLATE };
        }
        Self {
            is_pod,
            allow_broken_pages: breaks_pages(spec),
            allow_bad_deletion_cost: annotations::deletion_cost(old.at("metadata")).is_err(),
            allow_distant_token_paths: spec.list("volumes").iter().any(has_distant_token_path),
            allow_host_sysctls: security::uses_host_sysctls(spec),
            allow_user_namespace_devices: spec.boolean("hostUsers") == Some(false)
                && CONTAINER_LISTS.iter().any(|list| spec.list(list).iter().any(has_devices)),
            allow_any_selinux_change: spec.at("securityContext").has("seLinuxChangePolicy"),
            allow_bad_spread_selectors: has_bad_spread_selector(spec),
            allow_repeated_spread_keys: repeats_spread_keys(spec),
            affinity_values: unchecked_if(has_bad_affinity_values(spec.at("affinity"))),
            node_affinity_values: unchecked_if(has_bad_node_affinity_values(spec.at("affinity"))),
        }
    }
}

fn unchecked_if(bad: bool) -> Values {
    if bad { Values::Unchecked } else { Values::Checked }
}

fn breaks_pages(spec: &Value) -> bool {
    let breaks = |list: &Value| {
        amounts(list)
            .any(|(name, amount)| resources::is_huge_pages(name) && !resources::is_whole_pages(name, &amount))
    };
    let container_breaks = |container: &Value| {
        let resources = container.at("resources");
        breaks(resources.at("limits")) || breaks(resources.at("requests"))
    };
    CONTAINER_LISTS.iter().any(|list| spec.list(list).iter().any(container_breaks))
        || breaks(spec.at("overhead"))
}

fn has_distant_token_path(volume: &Value) -> bool {
    let sources = volume.at("projected").list("sources").iter();
    let mut tokens = sources.map(|source| source.at("serviceAccountToken")).filter(|token| !token.is_null());
    tokens.any(|token| {
        let mut errors = Errors::default();
        paths::not_reserved(token.text("path"), &Path::root(""), &mut errors);
        !errors.is_empty()
    })
}

fn has_devices(container: &Value) -> bool {
    !container.list("volumeDevices").is_empty()
}

fn has_bad_spread_selector(spec: &Value) -> bool {
    spec.list("topologySpreadConstraints").iter().any(|constraint| {
        let mut errors = Errors::default();
        labels::selector(constraint.at("labelSelector"), Values::Checked, &Path::root(""), &mut errors);
        !errors.is_empty()
    })
}

fn repeats_spread_keys(spec: &Value) -> bool {
    spec.list("topologySpreadConstraints").iter().any(|constraint| {
        let mut errors = Errors::default();
        super::scheduling::check_label_keys(constraint, &Path::root(""), &mut errors);
        !errors.is_empty()
    })
}

fn has_bad_affinity_values(affinity: &Value) -> bool {
    let bad = |term: &Value| {
        labels::has_bad_values(term.at("labelSelector"))
            || labels::has_bad_values(term.at("namespaceSelector"))
    };
    ["podAffinity", "podAntiAffinity"].iter().map(|kind| affinity.at(kind)).any(|affinity| {
        affinity.list("requiredDuringSchedulingIgnoredDuringExecution").iter().any(bad)
            || affinity
                .list("preferredDuringSchedulingIgnoredDuringExecution")
                .iter()
                .any(|weighted| bad(weighted.at("podAffinityTerm")))
    })
}

fn has_bad_node_affinity_values(affinity: &Value) -> bool {
    let required = affinity.at("nodeAffinity").at("requiredDuringSchedulingIgnoredDuringExecution");
    labels::node_selector_has_bad_values(required)
}
