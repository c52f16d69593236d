//! The list of admission plugins, their order, and which are enabled.
//!
//! The names are the values of kube-apiserver's `--enable-admission-plugins` and `--disable-admission-plugins`.

use super::{
    AdmissionConfiguration, CertificateApproval, CertificateSigning, CertificateSubjectRestriction,
    ClusterTrustBundleAttest, DefaultIngressClass, DefaultStorageClass, DefaultTolerationSeconds,
    DeviceAdminAccess, DynPlugin, LimitRanger, MutatingAdmissionPolicy, MutatingAdmissionWebhook,
    NamespaceLifecycle, NodeRestriction, ParamRights, PersistentVolumeClaimResize, PodSecurity,
    PodTopologyLabels, Priority, ResourceQuota, RoleEscalation, RuntimeClass, ServiceAccount,
    StorageObjectInUseProtection, TaintNodesByCondition, ValidatingAdmissionPolicy,
    ValidatingAdmissionWebhook,
};

/// Whether a plugin is enabled by default.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DefaultState {
    On,
    Off,
    /// Not a plugin in v1.34 but built in: it cannot be disabled.
    Always,
}

/// The plugin that restricts nodes to their own objects.
pub const NODE_RESTRICTION: &str = "NodeRestriction";

type Make = fn(&AdmissionConfiguration) -> Box<dyn DynPlugin>;

/// In v1.34's order.
const PLUGINS: [(&str, DefaultState, Make); 26] = [
    ("NamespaceLifecycle", DefaultState::On, |_| Box::new(NamespaceLifecycle)),
    ("LimitRanger", DefaultState::On, |_| Box::new(LimitRanger)),
    ("ServiceAccount", DefaultState::On, |_| Box::new(ServiceAccount)),
    (NODE_RESTRICTION, DefaultState::Off, |_| Box::new(NodeRestriction)),
    ("TaintNodesByCondition", DefaultState::On, |_| Box::new(TaintNodesByCondition)),
    ("PodSecurity", DefaultState::On, |all| Box::new(PodSecurity::new(all.pod_security.clone()))),
    ("Priority", DefaultState::On, |_| Box::new(Priority)),
    ("DefaultTolerationSeconds", DefaultState::On, |_| Box::new(DefaultTolerationSeconds)),
    ("DefaultStorageClass", DefaultState::On, |_| Box::new(DefaultStorageClass)),
    ("StorageObjectInUseProtection", DefaultState::On, |_| Box::new(StorageObjectInUseProtection)),
    ("PersistentVolumeClaimResize", DefaultState::On, |_| Box::new(PersistentVolumeClaimResize)),
    ("RuntimeClass", DefaultState::On, |_| Box::new(RuntimeClass)),
    ("CertificateApproval", DefaultState::On, |_| Box::new(CertificateApproval)),
    ("CertificateSigning", DefaultState::On, |_| Box::new(CertificateSigning)),
    ("ClusterTrustBundleAttest", DefaultState::On, |_| Box::new(ClusterTrustBundleAttest)),
    ("CertificateSubjectRestriction", DefaultState::On, |_| Box::new(CertificateSubjectRestriction)),
    ("DefaultIngressClass", DefaultState::On, |_| Box::new(DefaultIngressClass)),
    ("PodTopologyLabels", DefaultState::On, |_| Box::new(PodTopologyLabels)),
    ("MutatingAdmissionPolicy", DefaultState::On, |_| Box::new(MutatingAdmissionPolicy)),
    ("MutatingAdmissionWebhook", DefaultState::On, |_| Box::new(MutatingAdmissionWebhook)),
    ("", DefaultState::Always, |_| Box::new(RoleEscalation)),
    ("", DefaultState::Always, |_| Box::new(DeviceAdminAccess)),
    ("", DefaultState::Always, |_| Box::new(ParamRights)),
    ("ValidatingAdmissionPolicy", DefaultState::On, |_| Box::new(ValidatingAdmissionPolicy)),
    ("ValidatingAdmissionWebhook", DefaultState::On, |_| Box::new(ValidatingAdmissionWebhook)),
    ("ResourceQuota", DefaultState::On, |all| Box::new(ResourceQuota::new(all.resource_quota.clone()))),
];

/// v1.34's other plugins. Those enabled there by default only act behind a feature gate or on kinds that are not
/// served here, so omitting them changes nothing.
const OTHERS: [&str; 13] = [
    "AlwaysAdmit",
    "AlwaysDeny",
    "AlwaysPullImages",
    "DenyServiceExternalIPs",
    "EventRateLimit",
    "ExtendedResourceToleration",
    "ImagePolicyWebhook",
    "LimitPodHardAntiAffinityTopology",
    "NamespaceAutoProvision",
    "NamespaceExists",
    "OwnerReferencesPermissionEnforcement",
    "PodNodeSelector",
    "PodTolerationRestriction",
];

/// An invalid selection of plugins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectionError {
    #[error("{flag} plugin {name:?} is unknown")]
    Unknown { flag: &'static str, name: String },
    #[error("enable-admission-plugins plugin {name:?} is one of Kubernetes that this server does not have")]
    NotHere { name: String },
    #[error("{names:?} in enable-admission-plugins and disable-admission-plugins overlapped")]
    Overlap { names: Vec<String> },
}

/// Returns the plugins that v1.34 enables by default, in its order.
pub fn default_plugins() -> Vec<Box<dyn DynPlugin>> {
    selected(&[], &[], &AdmissionConfiguration::default())
}

/// Returns the default plugins and NodeRestriction: for clusters whose nodes have their own credentials.
pub fn default_plugins_and_node_restriction() -> Vec<Box<dyn DynPlugin>> {
    selected(&[NODE_RESTRICTION.to_owned()], &[], &AdmissionConfiguration::default())
}

/// Returns the default plugins, without the disabled and with the enabled ones.
pub fn plugins(enable: &[String], disable: &[String]) -> Result<Vec<Box<dyn DynPlugin>>, SelectionError> {
    configured_plugins(enable, disable, &AdmissionConfiguration::default())
}

/// Like [`plugins`], with a configuration.
pub fn configured_plugins(
    enable: &[String],
    disable: &[String],
    configuration: &AdmissionConfiguration,
) -> Result<Vec<Box<dyn DynPlugin>>, SelectionError> {
    for name in enable {
        check("enable-admission-plugins", name)?;
        if !is_here(name) {
            return Err(SelectionError::NotHere { name: name.clone() });
        }
    }
    for name in disable {
        check("disable-admission-plugins", name)?;
    }
    let names: Vec<String> = enable.iter().filter(|name| disable.contains(name)).cloned().collect();
    if !names.is_empty() {
        return Err(SelectionError::Overlap { names });
    }
    Ok(selected(enable, disable, configuration))
}

fn selected(
    enable: &[String],
    disable: &[String],
    configuration: &AdmissionConfiguration,
) -> Vec<Box<dyn DynPlugin>> {
    let is_on = |name: &str, usually: DefaultState| match usually {
        DefaultState::Always => true,
        DefaultState::On => !disable.iter().any(|disabled| disabled == name),
        DefaultState::Off => enable.iter().any(|enabled| enabled == name),
    };
    let chosen = PLUGINS.iter().filter(|(name, usually, _)| is_on(name, *usually));
    chosen.map(|(_, _, make)| make(configuration)).collect()
}

fn is_here(name: &str) -> bool {
    PLUGINS.iter().any(|(known, usually, _)| *known == name && *usually != DefaultState::Always)
}

fn check(flag: &'static str, name: &str) -> Result<(), SelectionError> {
    match is_here(name) || OTHERS.contains(&name) {
        true => Ok(()),
        false => Err(SelectionError::Unknown { flag, name: name.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_is_checked_as_kube_apiserver_does() {
        let names = |text: &str| -> Vec<String> {
            text.split(',').filter(|name| !name.is_empty()).map(Into::into).collect()
        };
        let defaults = default_plugins().len();
        for (enable, disable, expected) in [
            ("", "", Ok(defaults)),
            ("NodeRestriction,LimitRanger", "", Ok(defaults + 1)),
            ("", "PodSecurity,AlwaysDeny", Ok(defaults - 1)),
            ("Nonsense", "", Err("enable-admission-plugins plugin \"Nonsense\" is unknown")),
            ("", "Nonsense", Err("disable-admission-plugins plugin \"Nonsense\" is unknown")),
            (
                "PodNodeSelector",
                "",
                Err(
                    "enable-admission-plugins plugin \"PodNodeSelector\" is one of Kubernetes that this server does not have",
                ),
            ),
            (
                "LimitRanger",
                "LimitRanger",
                Err("[\"LimitRanger\"] in enable-admission-plugins and disable-admission-plugins overlapped"),
            ),
        ] {
            let chosen = plugins(&names(enable), &names(disable)).map(|chosen| chosen.len());
            let expected = expected.map_err(str::to_owned);
            assert_eq!(chosen.map_err(|error| error.to_string()), expected, "{enable} {disable}");
        }
    }
}
