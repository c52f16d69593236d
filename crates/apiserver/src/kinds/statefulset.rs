//! StatefulSets.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::persistentvolumeclaim::validation::{Leniency, check_spec as check_claim};
use super::pod::template;
use super::{APPS, entry, metadata, persistentvolumeclaim, selector, workload};
use crate::declared;
use crate::features::Features;
use crate::field::{Errors, Path};
use crate::json::{Json, JsonMut};
use crate::kind::{Kind, Subresource};
use crate::strategy::{Lifecycle, NameRule, Semantics, Validation};
use crate::table::Column;
use crate::validation::{dns_label, nonnegative_field};

pub fn kind(features: &Features) -> Kind {
    let mut columns = vec![
        Column::name(),
        Column::text("Ready", "Number of the pod with ready state", |set, _| workload::ready(set)),
        Column::age(),
    ];
    columns.extend(template::container_columns().map(Column::wide));
    Kind {
        short_names: vec!["sts".into()],
        categories: vec!["all".into()],
        subresources: vec![Subresource::Scale, Subresource::Status],
        columns,
        semantics: Semantics {
            names: NameRule::Label,
            ..Semantics::with_status(|| json!({"replicas": 0, "availableReplicas": 0}))
        },
        ..entry(
            &APPS,
            "StatefulSet",
            "statefulsets",
            StatefulSet { max_unavailable: features.has("MaxUnavailableStatefulSet") },
        )
    }
}

/// The mutable fields of the spec.
const CHANGEABLE: [&str; 7] = [
    "replicas",
    "template",
    "updateStrategy",
    "minReadySeconds",
    "ordinals",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
];
const UNCHANGEABLE: &str = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
const KEEPS_ALL_REVISIONS: &str = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended";

struct StatefulSet {
    /// Whether updates may take down several pods at once.
    max_unavailable: bool,
}

#[cfg(test)]
impl StatefulSet {
    const DEFAULT: Self = Self { max_unavailable: false };
}

impl Lifecycle for StatefulSet {
    fn default(&self, set: &mut Value) {
        let spec = set.object_mut("spec");
        spec.or_text("podManagementPolicy", "OrderedReady");
        default_rollout(spec.object_mut("updateStrategy"));
        if self.max_unavailable {
            default_unavailable(spec.object_mut("updateStrategy"));
        }
        let retention = spec.object_mut("persistentVolumeClaimRetentionPolicy");
        retention.or_text("whenDeleted", "Retain");
        retention.or_text("whenScaled", "Retain");
        spec.or_insert("replicas", 1);
        spec.or_insert("revisionHistoryLimit", 10);
        template::default(spec);
        for claim in spec.list_mut("volumeClaimTemplates") {
            claim.set("kind", "PersistentVolumeClaim");
            claim.set("apiVersion", "v1");
            persistentvolumeclaim::default(claim);
        }
    }

    fn prepare_for_create(&self, set: &mut Value) {
        workload::drop_disabled(set);
        self.drop_unavailable(set, &Value::Null);
    }

    fn prepare_for_update(&self, new: &mut Value, old: &Value) {
        workload::drop_disabled(new);
        self.drop_unavailable(new, old);
    }
}

impl Validation for StatefulSet {
    fn validate(&self, set: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::new(set, &mut errors);
        let path = Path::root("spec");
        check_policies(set.at("spec"), &path, &mut errors);
        check_claims(set.at("spec"), &path.child("volumeClaimTemplates"), &mut errors);
        check_numbers(set.at("spec"), &path, &mut errors);
        let service = set.at("spec").text("serviceName");
        if !service.is_empty() {
            dns_label(service, &path.child("serviceName"), &mut errors);
        }
        check_pods(set.at("spec"), &Value::Null, TemplateCheck::Whole, &path, &mut errors);
        errors
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        metadata::change(new, &mut errors);
        let was_wrong = !changed_spec(old, old, TemplateCheck::Whole).is_empty();
        let template = if was_wrong { TemplateCheck::Metadata } else { TemplateCheck::Whole };
        errors.extend(changed_spec(new, old, template));
        let mut expected = new.at("spec").clone();
        for field in CHANGEABLE {
            expected.restore(field, old.at("spec"));
        }
        if expected != *old.at("spec") {
            errors.forbidden(&Path::root("spec"), UNCHANGEABLE);
        }
        errors
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Errors {
        let mut errors = Errors::default();
        let status = new.at("status");
        let parts = ["readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"];
        workload::check_counts(status, &["replicas"], &mut errors);
        workload::check_counts(status, &parts, &mut errors);
        workload::check_counts(status, &["observedGeneration", "collisionCount"], &mut errors);
        workload::check_parts(status, &parts, &mut errors);
        workload::check_available(status, "status.readyReplicas", &mut errors);
        metadata::change(new, &mut errors);
        workload::check_collisions(status, old.at("status"), &mut errors);
        errors
    }

    fn warnings(&self, new: &Value, old: Option<&Value>) -> Vec<String> {
        let mut found = Vec::new();
        let path = Path::root("spec");
        let spec = new.at("spec");
        if old.is_none_or(|old| self.changes_generation(new, old)) {
            template::warn(spec.at("template"), &path.child("template"), &mut found);
        }
        let claims = path.child("volumeClaimTemplates");
        for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
            let path = claims.index(index);
            let spec_path = path.child("Spec");
            // v1.34 names the spec only for updates, and capitalizes it.
            let path = if old.is_some() { spec_path } else { path };
            persistentvolumeclaim::warn_of_fractions(&path, claim.at("spec"), &mut found);
        }
        if spec.count("revisionHistoryLimit") < 0 {
            found.push(KEEPS_ALL_REVISIONS.into());
        }
        found
    }
}

fn default_rollout(strategy: &mut Value) {
    if strategy.text("type").is_empty() {
        strategy.set("type", "RollingUpdate");
        strategy.object_mut("rollingUpdate");
    }
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.at_mut("rollingUpdate")
    {
        rolling.or_insert("partition", 0);
    }
}

/// Sets the default of one pod at a time.
fn default_unavailable(strategy: &mut Value) {
    if strategy.text("type") == "RollingUpdate"
        && let Some(rolling) = strategy.at_mut("rollingUpdate")
    {
        rolling.or_insert("maxUnavailable", 1);
    }
}

impl StatefulSet {
    /// Drops the field if the feature is disabled, unless already present.
    fn drop_unavailable(&self, set: &mut Value, old: &Value) {
        let rolling =
            |set: &Value| set.at("spec").at("updateStrategy").at("rollingUpdate").has("maxUnavailable");
        if self.max_unavailable || rolling(old) {
            return;
        }
        let strategy = set.object_mut("spec").at_mut("updateStrategy");
        if let Some(rolling) = strategy.and_then(|strategy| strategy.at_mut("rollingUpdate")) {
            rolling.unset("maxUnavailable");
        }
    }
}

/// How much of a template to validate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TemplateCheck {
    Whole,
    /// The stored template is already invalid, and may stay so.
    Metadata,
}

/// Validates the spec of an update. Claims and the service name are immutable, so existing errors in them are
/// tolerated.
fn changed_spec(set: &Value, old: &Value, template: TemplateCheck) -> Errors {
    let mut errors = Errors::default();
    let path = Path::root("spec");
    check_policies(set.at("spec"), &path, &mut errors);
    check_numbers(set.at("spec"), &path, &mut errors);
    check_pods(set.at("spec"), old.at("spec"), template, &path, &mut errors);
    errors
}

fn check_policies(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let management = spec.text("podManagementPolicy");
    if !matches!(management, "OrderedReady" | "Parallel") {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.invalid(&path.child("podManagementPolicy"), management, detail);
    }
    check_rollout(spec.at("updateStrategy"), &path.child("updateStrategy"), errors);
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    let path = path.child("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        if !matches!(retention.text(field), "Retain" | "Delete") {
            errors.not_supported(&path.child(field), retention.text(field), &["Retain", "Delete"]);
        }
    }
}

fn check_rollout(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling = strategy.at("rollingUpdate");
    let rolling_path = path.child("rollingUpdate");
    match strategy.text("type") {
        "OnDelete" if rolling.is_null() => {}
        "OnDelete" => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid(&rolling_path, declared::of(rolling, &declared::PARTITION), detail);
        }
        "RollingUpdate" => check_rolling_update(rolling, &rolling_path, errors),
        _ => {
            let shown = declared::of(strategy, &declared::PARTITIONED_ROLLOUT);
            errors.invalid(path, shown, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn check_rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    nonnegative_field(rolling, "partition", path, errors);
    let unavailable = rolling.at("maxUnavailable");
    if unavailable.is_null() {
        return;
    }
    let path = path.child("maxUnavailable");
    workload::check_int_or_percent(unavailable, &path, errors);
    if workload::int_or_percent(unavailable) == 0 {
        errors.invalid(&path, unavailable.clone(), "cannot be 0");
    }
    workload::check_at_most_all(unavailable, &path, errors);
}

fn check_claims(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (index, claim) in spec.list("volumeClaimTemplates").iter().enumerate() {
        check_claim(claim.at("spec"), Leniency::NONE, &path.index(index).child("spec"), errors);
    }
}

fn check_numbers(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    nonnegative_field(spec, "replicas", path, errors);
    nonnegative_field(spec, "minReadySeconds", path, errors);
    nonnegative_field(spec.at("ordinals"), "start", &path.child("ordinals"), errors);
}

fn check_pods(spec: &Value, old: &Value, check: TemplateCheck, path: &Path<'_>, errors: &mut Errors) {
    let selector = spec.at("selector");
    let selector_path = path.child("selector");
    let path = path.child("template");
    if template::check_selector(selector, "statefulset", &selector_path, errors) {
        let template = template_with_identity(spec);
        let old = old.at("template");
        if selector.is_null() || !selector::is_empty(selector) {
            template::check_labels(selector, &template, &path, errors);
        }
        if check == TemplateCheck::Whole {
            template::check(&template, old, &path, errors);
        }
        template::check_metadata(&template, old, &path, errors);
    } else {
        errors.invalid(&selector_path, selector.clone(), "");
    }
    template::check_runs_forever(spec.at("template"), "StatefulSet", &path, errors);
}

/// Returns the template as the controller will use it: with a volume for each claim, and hostnames.
fn template_with_identity(spec: &Value) -> Value {
    let mut template = spec.at("template").clone();
    let claims = spec.list("volumeClaimTemplates");
    let pod = template.object_mut("spec");
    pod.unset("subdomain");
    pod.unset("hostname");
    if claims.is_empty() {
        return template;
    }
    // If several claims have the same name, the last one wins.
    let last: BTreeMap<&str, usize> =
        claims.iter().enumerate().map(|(at, claim)| (claim_name(claim), at)).collect();
    let counting = claims.iter().enumerate().filter(|(at, claim)| last.get(claim_name(claim)) == Some(at));
    let mut volumes: Vec<Value> = counting
        .map(|(_, claim)| json!({"name": claim_name(claim), "persistentVolumeClaim": {"claimName": claim_name(claim)}}))
        .collect();
    volumes
        .extend(pod.list("volumes").iter().filter(|volume| !last.contains_key(volume.text("name"))).cloned());
    pod.set("volumes", volumes);
    template
}

/// Returns the name of a claim template.
fn claim_name(claim: &Value) -> &str {
    claim.at("metadata").text("name")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::check;

    fn set(change: impl FnOnce(&mut Value)) -> Value {
        let mut set = json!({"metadata": {}, "spec": {"serviceName": "s", "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
        change(set.object_mut("spec"));
        set
    }

    fn claim(size: &str) -> Value {
        json!([{"metadata": {"name": "data"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}}])
    }

    #[test]
    fn claims_are_claims_and_can_be_mounted() {
        let mut mounting = set(|spec| spec.set("volumeClaimTemplates", claim("1Gi")));
        mounting["spec"]["template"]["spec"]["containers"][0]["volumeMounts"] =
            json!([{"name": "data", "mountPath": "/data"}]);
        check::create(&StatefulSet::DEFAULT, mounting.clone(), &[]);
        StatefulSet::DEFAULT.default(&mut mounting);
        let stored = &mounting["spec"]["volumeClaimTemplates"][0];
        assert_eq!((&stored["kind"], &stored["apiVersion"]), (&"PersistentVolumeClaim".into(), &"v1".into()));
        assert_eq!(
            (&stored["status"]["phase"], &stored["spec"]["volumeMode"]),
            (&"Pending".into(), &"Filesystem".into())
        );
        check::create(
            &StatefulSet::DEFAULT,
            set(|spec| spec.set("volumeClaimTemplates", claim("0"))),
            &["Invalid spec.volumeClaimTemplates[0].spec.resources[storage]"],
        );
    }

    #[test]
    fn unknown_policies_are_rejected() {
        check::create(
            &StatefulSet::DEFAULT,
            set(|spec| {
                spec.set("podManagementPolicy", "X");
                spec.set("updateStrategy", json!({"type": "OnDelete", "rollingUpdate": {}}));
                spec.set("persistentVolumeClaimRetentionPolicy", json!({"whenScaled": "X"}));
                spec.set("serviceName", "a.b");
                spec.set("ordinals", json!({"start": -1}));
            }),
            &[
                "Invalid spec.podManagementPolicy",
                "Invalid spec.updateStrategy.rollingUpdate",
                "NotSupported spec.persistentVolumeClaimRetentionPolicy.whenScaled",
                "Invalid spec.ordinals.start",
                "Invalid spec.serviceName",
            ],
        );
    }

    #[test]
    fn service_name_and_claim_templates_are_immutable() {
        let old = set(|_| ());
        let scaled = set(|spec| {
            spec.set("replicas", 3);
            spec.set("minReadySeconds", 3);
        });
        check::update(&StatefulSet::DEFAULT, scaled, &old, &[]);
        check::update(
            &StatefulSet::DEFAULT,
            set(|spec| spec.set("serviceName", "t")),
            &old,
            &["Forbidden spec"],
        );
        check::update(
            &StatefulSet::DEFAULT,
            set(|spec| spec.set("volumeClaimTemplates", claim("1Gi"))),
            &old,
            &["Forbidden spec"],
        );
    }

    #[test]
    fn counts_are_consistent() {
        let errors = StatefulSet::DEFAULT.validate_status_update(
            &json!({"status": {"replicas": 1, "currentReplicas": 2, "availableReplicas": 1}}),
            &json!({}),
        );
        assert_eq!(
            check::shown(&errors),
            ["Invalid status.currentReplicas", "Invalid status.availableReplicas"]
        );
    }
}
