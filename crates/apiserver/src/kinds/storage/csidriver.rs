//! CSIDrivers: what a volume driver requires from nodes.

use serde_json::{Value, json};

use super::STORAGE;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Scope};
use crate::kinds::{entry, metadata};
use crate::strategy::{Deletion, Lifecycle, Semantics, Validation};
use crate::table::{Cell, Column, or_none};
use crate::validation::{Seen, immutable, optional_choice};

pub fn kind() -> Kind {
    Kind {
        scope: Scope::Cluster,
        columns: vec![
            Column::name(),
            flag("AttachRequired", ATTACH, |driver, _| driver.at("spec").flag("attachRequired").into()),
            flag("PodInfoOnMount", POD_INFO, |driver, _| driver.at("spec").flag("podInfoOnMount").into()),
            flag("StorageCapacity", CAPACITY, |driver, _| driver.at("spec").flag("storageCapacity").into()),
            Column::text("TokenRequests", TOKENS, |driver, _| audiences(driver.at("spec"))),
            flag("RequiresRepublish", REPUBLISH, |driver, _| {
                driver.at("spec").flag("requiresRepublish").into()
            }),
            Column::text("Modes", MODES, |driver, _| {
                let modes = driver.at("spec").list("volumeLifecycleModes").iter();
                or_none(&modes.filter_map(Value::as_str).collect::<Vec<_>>().join(","))
            }),
            Column::age(),
        ],
        semantics: Semantics {
            counts_generations: false,
            unconditional_update: false,
            deletion: Deletion::RETURNS_OBJECT,
            ..Semantics::default()
        },
        ..entry(&STORAGE, "CSIDriver", "csidrivers", CSIDriver)
    }
}

const ATTACH: &str = "attachRequired indicates this CSI volume driver requires an attach operation (because it implements the CSI ControllerPublishVolume() method), and that the Kubernetes attach detach controller should call the attach volume interface which checks the volumeattachment status and waits until the volume is attached before proceeding to mounting. The CSI external-attacher coordinates with CSI volume driver and updates the volumeattachment status when the attach operation is complete. If the value is specified to false, the attach operation will be skipped. Otherwise the attach operation will be called.\n\nThis field is immutable.";
const POD_INFO: &str = "podInfoOnMount indicates this CSI volume driver requires additional pod information (like podName, podUID, etc.) during mount operations, if set to true. If set to false, pod information will not be passed on mount. Default is false.\n\nThe CSI driver specifies podInfoOnMount as part of driver deployment. If true, Kubelet will pass pod information as VolumeContext in the CSI NodePublishVolume() calls. The CSI driver is responsible for parsing and validating the information passed in as VolumeContext.\n\nThe following VolumeContext will be passed if podInfoOnMount is set to true. This list might grow, but the prefix will be used. \"csi.storage.k8s.io/pod.name\": pod.Name \"csi.storage.k8s.io/pod.namespace\": pod.Namespace \"csi.storage.k8s.io/pod.uid\": string(pod.UID) \"csi.storage.k8s.io/ephemeral\": \"true\" if the volume is an ephemeral inline volume\n                                defined by a CSIVolumeSource, otherwise \"false\"\n\n\"csi.storage.k8s.io/ephemeral\" is a new feature in Kubernetes 1.16. It is only required for drivers which support both the \"Persistent\" and \"Ephemeral\" VolumeLifecycleMode. Other drivers can leave pod info disabled and/or ignore this field. As Kubernetes 1.15 doesn't support this field, drivers can only support one mode when deployed on such a cluster and the deployment determines which mode that is, for example via a command line parameter of the driver.\n\nThis field was immutable in Kubernetes < 1.29 and now is mutable.";
const CAPACITY: &str = "storageCapacity indicates that the CSI volume driver wants pod scheduling to consider the storage capacity that the driver deployment will report by creating CSIStorageCapacity objects with capacity information, if set to true.\n\nThe check can be enabled immediately when deploying a driver. In that case, provisioning new volumes with late binding will pause until the driver deployment has published some suitable CSIStorageCapacity object.\n\nAlternatively, the driver can be deployed with the field unset or false and it can be flipped later when storage capacity information has been published.\n\nThis field was immutable in Kubernetes <= 1.22 and now is mutable.";
const TOKENS: &str = "tokenRequests indicates the CSI driver needs pods' service account tokens it is mounting volume for to do necessary authentication. Kubelet will pass the tokens in VolumeContext in the CSI NodePublishVolume calls. The CSI driver should parse and validate the following VolumeContext: \"csi.storage.k8s.io/serviceAccount.tokens\": {\n  \"<audience>\": {\n    \"token\": <token>,\n    \"expirationTimestamp\": <expiration timestamp in RFC3339>,\n  },\n  ...\n}\n\nNote: Audience in each TokenRequest should be different and at most one token is empty string. To receive a new token after expiry, RequiresRepublish can be used to trigger NodePublishVolume periodically.";
const REPUBLISH: &str = "requiresRepublish indicates the CSI driver wants `NodePublishVolume` being periodically called to reflect any possible change in the mounted volume. This field defaults to false.\n\nNote: After a successful initial NodePublishVolume call, subsequent calls to NodePublishVolume should only update the contents of the volume. New mount points will not be seen by a running container.";
const MODES: &str = "volumeLifecycleModes defines what kind of volumes this CSI volume driver supports. The default if the list is empty is \"Persistent\", which is the usage defined by the CSI specification and implemented in Kubernetes via the usual PV/PVC mechanism.\n\nThe other mode is \"Ephemeral\". In this mode, volumes are defined inline inside the pod spec with CSIVolumeSource and their lifecycle is tied to the lifecycle of that pod. A driver has to be aware of this because it is only going to get a NodePublishVolume call for such a volume.\n\nFor more information about implementing this mode, see https://kubernetes-csi.github.io/docs/ephemeral-local-volumes.html A driver can support one or more of these modes and more modes may be added in the future.\n\nThis field is beta. This field is immutable.";
const MIN_TOKEN_SECONDS: i64 = 600;
const MAX_TOKEN_SECONDS: i64 = 1 << 32;

const fn flag(name: &'static str, description: &'static str, cell: Cell) -> Column {
    Column { data_type: "boolean", ..Column::text(name, description, cell) }
}

fn audiences(spec: &Value) -> Value {
    if !spec.has("tokenRequests") {
        return "<unset>".into();
    }
    crate::table::joined(spec.list("tokenRequests"), "audience")
}

struct CSIDriver;

impl Lifecycle for CSIDriver {
    fn default(&self, driver: &mut Value) {
        let spec = driver.object_mut("spec");
        spec.or_insert("attachRequired", true);
        spec.or_insert("podInfoOnMount", false);
        spec.or_insert("storageCapacity", false);
        spec.or_insert("fsGroupPolicy", "ReadWriteOnceWithFSType");
        if spec.list("volumeLifecycleModes").is_empty() {
            spec.set("volumeLifecycleModes", json!(["Persistent"]));
        }
        spec.or_insert("requiresRepublish", false);
        spec.or_insert("seLinuxMount", false);
    }

    fn prepare_for_create(&self, driver: &mut Value) {
        drop_update_period(driver, &Value::Null);
    }

    /// Increments the generation, which, as in v1.34, counts from the first change on.
    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        drop_update_period(new, old);
        if new.at("spec") != old.at("spec") {
            let generation = old.at("metadata").count("generation");
            new.object_mut("metadata").set("generation", generation.wrapping_add(1));
        }
    }
}

impl Validation for CSIDriver {
    fn validate(&self, driver: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(driver, &mut errors);
        check_spec(driver.at("spec"), &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let (spec, old_spec) = (new.at("spec"), old.at("spec"));
        check_spec(spec, &mut errors);
        let path = Path::root("spec");
        immutable(
            spec.at("attachRequired"),
            old_spec.at("attachRequired"),
            &path.child("attachedRequired"),
            &mut errors,
        );
        let modes = "volumeLifecycleModes";
        immutable(spec.at(modes), old_spec.at(modes), &path.child(modes), &mut errors);
        errors
    }
}

/// Drops the field of mutable node allocatable, which v1.34 disables, unless already present.
fn drop_update_period(driver: &mut Value, old: &Value) {
    let field = "nodeAllocatableUpdatePeriodSeconds";
    if !old.at("spec").has(field) {
        driver.object_mut("spec").unset(field);
    }
}

fn check_spec(spec: &Value, errors: &mut Errors) {
    let path = Path::root("spec");
    for (field, named) in [
        ("attachRequired", "attachedRequired"),
        ("podInfoOnMount", "podInfoOnMount"),
        ("storageCapacity", "storageCapacity"),
    ] {
        if !spec.has(field) {
            errors.required(&path.child(named), "");
        }
    }
    let policies = ["File", "None", "ReadWriteOnceWithFSType"];
    optional_choice(spec, "fsGroupPolicy", &policies, &path, errors);
    check_tokens(spec.list("tokenRequests"), &path.child("tokenRequests"), errors);
    for mode in spec.list("volumeLifecycleModes").iter().filter_map(Value::as_str) {
        if !["Persistent", "Ephemeral"].contains(&mode) {
            errors.not_supported(&path.child("volumeLifecycleModes"), mode, &["Persistent", "Ephemeral"]);
        }
    }
    if !spec.has("seLinuxMount") {
        errors.required(&path.child("seLinuxMount"), "");
    }
    let period = "nodeAllocatableUpdatePeriodSeconds";
    if let Some(seconds) = spec.int(period).filter(|seconds| *seconds < 10) {
        errors.invalid(&path.child(period), seconds, "must be greater than or equal to 10 seconds");
    }
}

fn check_tokens(requests: &[Value], path: &Path<'_>, errors: &mut Errors) {
    let mut seen = Seen::new();
    for (index, request) in requests.iter().enumerate() {
        let path = path.index(index);
        let audience = request.text("audience");
        if seen.again(audience) {
            errors.duplicate(&path.child("audience"), audience);
            continue;
        }
        let path = path.child("expirationSeconds");
        match request.int("expirationSeconds") {
            Some(seconds) if seconds < MIN_TOKEN_SECONDS => {
                errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
            }
            Some(seconds) if seconds > MAX_TOKEN_SECONDS => {
                errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    #[test]
    fn everything_has_a_default() {
        let mut driver = json!({});
        CSIDriver.default(&mut driver);
        check::create(&CSIDriver, json!({}), &[]);
        assert_eq!(
            driver,
            json!({"spec": {"attachRequired": true, "podInfoOnMount": false, "storageCapacity": false,
                "fsGroupPolicy": "ReadWriteOnceWithFSType", "volumeLifecycleModes": ["Persistent"],
                "requiresRepublish": false, "seLinuxMount": false}})
        );
    }

    #[test]
    fn tokens_have_audiences_of_their_own_and_live_long_enough() {
        check::create(
            &CSIDriver,
            json!({"spec": {"fsGroupPolicy": "X", "volumeLifecycleModes": ["Y"],
                "tokenRequests": [{"audience": "a", "expirationSeconds": 599}, {"audience": "a"}]}}),
            &[
                "NotSupported spec.fsGroupPolicy",
                "Invalid spec.tokenRequests[0].expirationSeconds",
                "Duplicate spec.tokenRequests[1].audience",
                "NotSupported spec.volumeLifecycleModes",
            ],
        );
    }

    #[test]
    fn attachment_and_modes_stay() {
        check::update(
            &CSIDriver,
            json!({"spec": {"attachRequired": false, "volumeLifecycleModes": ["Ephemeral"]}}),
            &json!({}),
            &["Invalid spec.attachedRequired", "Invalid spec.volumeLifecycleModes"],
        );
    }
}
