//! Feature gates: `--feature-gates Name=true,Other=false`.
//!
//! All gates of v1.34's kube-controller-manager are known by name (`gates.txt`), with the same errors and warnings, so
//! that a command line that works there works here. Gates that have an effect here are listed in [`EFFECTS`]; setting
//! any other gate to a non-default value prints a warning that it has no effect.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Name, default, stage, and whether it is locked to its default.
const TABLE: &str = include_str!("gates.txt");

/// These two set all gates of a stage that are not set by name.
const WHOLE_STAGES: [(&str, Stage); 2] = [("AllAlpha", Stage::Alpha), ("AllBeta", Stage::Beta)];

/// The component name in gate settings. There are no other components.
const COMPONENT: &str = "kube";

/// The gates that have an effect here, besides starting the controllers that need them.
pub const EFFECTS: &[(&str, &str)] = &[
    ("APIServerIdentity", "starts the StorageVersion garbage collector"),
    ("ClearingNominatedNodeNameAfterBinding", "clears `nominatedNodeName` when a pod is bound"),
    ("ClusterTrustBundle", "serves ClusterTrustBundles, and publishes the API server's CA"),
    (
        "DRADeviceTaints",
        "serves DeviceTaintRules, keeps pods off tainted devices, and evicts pods that use them",
    ),
    (
        "DRAPrioritizedList",
        "allows prioritized alternatives in the requests of claims created from templates",
    ),
    ("DRAAdminAccess", "allows admin access in claims created from templates"),
    (
        "DeploymentReplicaSetTerminatingReplicas",
        "counts terminating pods in the status of ReplicaSets and Deployments",
    ),
    ("DynamicResourceAllocation", "starts the ResourceClaim and device taint eviction controllers"),
    ("HPAConfigurableTolerance", "allows a tolerance per HorizontalPodAutoscaler"),
    ("HPAScaleToZero", "allows HorizontalPodAutoscalers to scale to zero"),
    ("InformerResourceVersion", "starts the storage version migrator"),
    ("JobManagedBy", "leaves Jobs with `managedBy` to their controller"),
    ("MaxUnavailableStatefulSet", "allows `maxUnavailable` in rolling updates of StatefulSets"),
    (
        "MutatingAdmissionPolicy",
        "applies MutatingAdmissionPolicies, and serves them in the versions that `--runtime-config` enables",
    ),
    ("PodCertificateRequest", "serves PodCertificateRequests, and deletes old ones"),
    ("PodDeletionCost", "deletes pods with the lowest deletion cost annotation first"),
    ("PodLevelResources", "lets HorizontalPodAutoscalers use pod-level resource requests"),
    ("PodLogsQuerySplitStreams", "lets clients choose between the stdout and the stderr of logs"),
    ("PodTopologyLabelsAdmission", "labels pods with the zone and region of their node"),
    ("PortForwardWebsockets", "unwraps port-forwards from WebSockets"),
    ("PreferSameTrafficDistribution", "supports the traffic distributions PreferSameZone and PreferSameNode"),
    ("RelaxedServiceNameValidation", "allows Service names that start with a digit"),
    ("SELinuxChangePolicy", "starts the SELinux warning controller"),
    (
        "SELinuxMountReadWriteOncePod",
        "lets the SELinux warning controller assume that volumes are mounted with their label",
    ),
    ("StorageVersionAPI", "serves StorageVersions, and removes entries of API servers that are gone"),
    ("StorageVersionMigrator", "serves StorageVersionMigrations, and runs them"),
    (
        "TokenRequestServiceAccountUIDValidation",
        "rejects token requests whose service account UID does not match",
    ),
    ("TranslateStreamCloseWebsocketRequests", "translates exec and attach over WebSockets of version 5"),
    ("VolumeAttributesClass", "keeps VolumeAttributesClasses in use"),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
    Stable,
    Deprecated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    default: bool,
    stage: Stage,
    locked: bool,
}

static KNOWN: LazyLock<BTreeMap<&'static str, Gate>> = LazyLock::new(|| {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let mut words = line.split_whitespace();
        let (name, default) = (words.next()?, words.next()? == "on");
        let stage = match words.next()? {
            "alpha" => Stage::Alpha,
            "beta" => Stage::Beta,
            "deprecated" => Stage::Deprecated,
            _ => Stage::Stable,
        };
        Some((name, Gate { default, stage, locked: words.next() == Some("locked") }))
    };
    lines.filter_map(read).collect()
});

/// The feature gates: v1.34's defaults, overridden by settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FeatureGates {
    set: BTreeMap<String, bool>,
}

impl FeatureGates {
    /// Whether a feature is enabled. Unknown features are not.
    pub fn on(&self, name: &str) -> bool {
        let Some(gate) = KNOWN.get(name) else { return false };
        let whole_stage = WHOLE_STAGES.iter().find(|(_, stage)| *stage == gate.stage);
        let of_stage = || whole_stage.and_then(|(all, _)| self.set.get(*all));
        self.set.get(name).or_else(of_stage).copied().unwrap_or(gate.default)
    }

    /// Sets a feature gate, like `--feature-gates`.
    ///
    /// # Errors
    /// If the feature does not exist or is locked.
    pub fn with(mut self, name: &str, on: bool) -> Result<Self, String> {
        self.set(name, on)?;
        Ok(self)
    }

    /// Returns warnings about gates that were set: that they will be removed, or have no effect here.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        for (name, value) in &self.set {
            let Some(gate) = KNOWN.get(name.as_str()) else { continue };
            match gate.stage {
                Stage::Stable => warnings.push(leaving("GA", name, *value)),
                Stage::Deprecated => warnings.push(leaving("deprecated", name, *value)),
                Stage::Alpha | Stage::Beta => {}
            }
            if gate.default != *value && !EFFECTS.iter().any(|(known, _)| known == name) {
                warnings.push(format!("--feature-gates: {name}={value} has no effect here"));
            }
        }
        warnings
    }

    fn set(&mut self, name: &str, value: bool) -> Result<(), String> {
        if !WHOLE_STAGES.iter().any(|(all, _)| *all == name) {
            let gate = KNOWN.get(name).ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
            if gate.locked && gate.default != value {
                let default = gate.default;
                return Err(format!(
                    "cannot set feature gate {name} to {value}, feature is locked to {default}"
                ));
            }
        }
        self.set.insert(name.to_owned(), value);
        Ok(())
    }
}

fn leaving(stage: &str, name: &str, value: bool) -> String {
    format!("Setting {stage} feature gate {name}={value}. It will be removed in a future release.")
}

impl std::str::FromStr for FeatureGates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut gates = Self::default();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let pair = match pair.split_once(':') {
                None => pair,
                Some((COMPONENT, pair)) => pair,
                Some((component, _)) => return Err(format!("component not registered: {component}")),
            };
            let (name, value) =
                pair.split_once('=').ok_or_else(|| format!("missing bool value for {pair}"))?;
            let value = crate::flags::truth(value)
                .map_err(|expected| format!("invalid value of {name}={value}, err: {expected}"))?;
            gates.set(name, value)?;
        }
        Ok(gates)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_set_and_rejected_as_in_kubernetes() {
        let check = |text: &str, expected: Result<&[&str], &str>| {
            let warnings = text.parse::<FeatureGates>().map(|gates| gates.warnings());
            let expected = expected.map(|list| list.iter().map(|one| (*one).to_owned()).collect());
            assert_eq!(warnings, expected.map_err(str::to_owned), "{text}");
        };
        check("", Ok(&[]));
        check("DRADeviceTaints=true,", Ok(&[]));
        check("kube:DRADeviceTaints=true", Ok(&[]));
        check("EventedPLEG=true", Ok(&["--feature-gates: EventedPLEG=true has no effect here"]));
        check("EventedPLEG=false", Ok(&[]));
        check("other:EventedPLEG=true", Err("component not registered: other"));
        check("Nonsense=true", Err("unrecognized feature gate: Nonsense"));
        check("DRADeviceTaints", Err("missing bool value for DRADeviceTaints"));
        let wrong = "invalid value of DRADeviceTaints=yes, err: expected true or false";
        check("DRADeviceTaints=yes", Err(wrong));
        let locked = "cannot set feature gate JobBackoffLimitPerIndex to false, feature is locked to true";
        check("JobBackoffLimitPerIndex=false", Err(locked));
        let going =
            "Setting GA feature gate JobBackoffLimitPerIndex=true. It will be removed in a future release.";
        check("JobBackoffLimitPerIndex=true", Ok(&[going]));
    }

    #[test]
    fn a_stage_is_set_except_for_gates_that_are_named() {
        let check = |text: &str, name: &str, expected: bool| {
            let gates: FeatureGates = text.parse().unwrap();
            assert_eq!(gates.on(name), expected, "{name} with {text:?}");
        };
        check("", "JobManagedBy", true);
        check("", "MaxUnavailableStatefulSet", false);
        check("", "Nonsense", false);
        check("AllAlpha=true", "MaxUnavailableStatefulSet", true);
        check("AllAlpha=true", "JobManagedBy", true);
        check("AllBeta=false", "JobManagedBy", false);
        check("AllBeta=false,JobManagedBy=true", "JobManagedBy", true);
        check("JobManagedBy=true,AllBeta=false", "JobManagedBy", true);
        check("MaxUnavailableStatefulSet=false,AllAlpha=true", "MaxUnavailableStatefulSet", false);
    }

    #[test]
    fn every_effect_belongs_to_a_known_gate() {
        let gates = EFFECTS.iter().map(|(name, _)| *name);
        let of_controllers = crate::REGISTRY.iter().flat_map(|entry| entry.gates.iter().copied());
        for name in gates.chain(of_controllers) {
            assert!(KNOWN.contains_key(name), "{name}");
        }
    }
}
