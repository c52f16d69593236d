//! The built-in kinds, one file or folder each. [`all`] is the registry that the server starts with.
//!
//! Each kind's module contains its entry (names, verbs, columns, selectable fields) and its [`Strategy`]: defaults,
//! preparation, validation. Shared code has its own modules: pod templates in [`pod::template`], code common to kinds
//! with a template in `workload`, selectors in [`selector`], resource lists in [`resources`].

use std::sync::Arc;

use crate::features::Features;
use crate::kind::{Kind, Scope, Verb};
use crate::strategy::{Presentation, Semantics, Strategy};
use crate::table::Column;

pub mod admissionregistration;
pub mod apiservice;
pub mod binding;
pub mod certificatesigningrequest;
pub mod clustertrustbundle;
pub mod componentstatus;
pub mod configmap;
pub mod controllerrevision;
pub mod cronjob;
pub mod customresourcedefinition;
pub mod daemonset;
pub mod deployment;
pub mod endpoints;
pub mod endpointslice;
pub mod event;
pub mod flowcontrol;
pub mod horizontalpodautoscaler;
pub mod job;
mod key_pair;
pub mod lease;
pub mod limitrange;
mod metadata;
pub mod namespace;
pub mod networking;
pub mod node;
pub mod persistentvolume;
pub mod persistentvolumeclaim;
pub mod pod;
pub mod podcertificaterequest;
pub mod poddisruptionbudget;
pub mod podtemplate;
pub mod priorityclass;
pub mod rbac;
pub mod replicaset;
pub mod replicationcontroller;
pub mod resource;
pub mod resourcequota;
pub mod resources;
pub mod review;
pub mod runtimeclass;
pub mod secret;
pub mod selector;
pub mod service;
pub mod serviceaccount;
pub mod statefulset;
pub mod storage;
pub mod storageversion;
pub mod storageversionmigration;
mod workload;

/// Returns all built-in kinds served with these features.
pub fn with(features: &Features) -> Vec<Kind> {
    let mut all = always(features);
    type Gated = (&'static str, fn() -> Kind);
    let gated: [Gated; 9] = [
        ("ClusterTrustBundle", clustertrustbundle::kind),
        ("DRADeviceTaints", resource::devicetaintrule::kind),
        ("MutatingAdmissionPolicy", admissionregistration::mutatingadmissionpolicy::v1beta1),
        ("MutatingAdmissionPolicy", admissionregistration::mutatingadmissionpolicy::v1alpha1),
        ("MutatingAdmissionPolicy", admissionregistration::mutatingadmissionpolicybinding::v1beta1),
        ("MutatingAdmissionPolicy", admissionregistration::mutatingadmissionpolicybinding::v1alpha1),
        ("PodCertificateRequest", podcertificaterequest::kind),
        ("StorageVersionAPI", storageversion::kind),
        ("StorageVersionMigrator", storageversionmigration::kind),
    ];
    all.extend(gated.into_iter().filter(|(feature, _)| features.has(feature)).map(|(_, kind)| kind()));
    all
}

/// Returns all built-in kinds served by default.
pub fn all() -> Vec<Kind> {
    with(&Features::default())
}

fn always(features: &Features) -> Vec<Kind> {
    vec![
        binding::kind(),
        componentstatus::kind(),
        configmap::kind(),
        endpoints::kind(),
        event::core_kind(),
        limitrange::kind(),
        namespace::kind(),
        node::kind(),
        persistentvolume::kind(),
        persistentvolumeclaim::kind(),
        pod::kind(),
        podtemplate::kind(),
        replicationcontroller::kind(),
        resourcequota::kind(),
        secret::kind(),
        service::kind(features),
        serviceaccount::kind(),
        controllerrevision::kind(),
        daemonset::kind(),
        deployment::kind(features),
        replicaset::kind(features),
        statefulset::kind(features),
        horizontalpodautoscaler::kind(features),
        horizontalpodautoscaler::v1::kind(features),
        cronjob::kind(),
        job::kind(),
        poddisruptionbudget::kind(),
        lease::kind(),
        customresourcedefinition::kind(),
        event::events_kind(),
        rbac::role(),
        rbac::role_binding(),
        rbac::cluster_role(),
        rbac::cluster_role_binding(),
        review::self_subject(),
        review::token(),
        review::local_subject_access(),
        review::self_subject_access(),
        review::self_subject_rules(),
        review::subject_access(),
        admissionregistration::mutatingwebhookconfiguration::kind(),
        admissionregistration::validatingadmissionpolicy::kind(),
        admissionregistration::validatingadmissionpolicybinding::kind(),
        admissionregistration::validatingwebhookconfiguration::kind(),
        apiservice::kind(),
        certificatesigningrequest::kind(),
        endpointslice::kind(),
        flowcontrol::flowschema::kind(),
        flowcontrol::prioritylevelconfiguration::kind(),
        networking::ingress::kind(),
        networking::ingressclass::kind(),
        networking::ipaddress::kind(),
        networking::networkpolicy::kind(),
        networking::servicecidr::kind(),
        priorityclass::kind(),
        resource::deviceclass::kind(),
        resource::resourceclaim::kind(),
        resource::resourceclaimtemplate::kind(),
        resource::resourceslice::kind(features),
        runtimeclass::kind(),
        storage::csidriver::kind(),
        storage::csinode::kind(),
        storage::csistoragecapacity::kind(),
        storage::storageclass::kind(),
        storage::volumeattachment::kind(),
        storage::volumeattributesclass::kind(),
    ]
}

/// The API group version of a kind.
struct Api {
    group: &'static str,
    version: &'static str,
    /// The package of its types: `io.k8s.api.core.v1`.
    schemas: &'static str,
}

const CORE: Api = Api { group: "", version: "v1", schemas: "io.k8s.api.core.v1" };
const APIEXTENSIONS: Api = Api {
    group: "apiextensions.k8s.io",
    version: "v1",
    schemas: "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
};
const APPS: Api = Api { group: "apps", version: "v1", schemas: "io.k8s.api.apps.v1" };
const AUTOSCALING_V1: Api = Api { group: "autoscaling", version: "v1", schemas: "io.k8s.api.autoscaling.v1" };
const AUTOSCALING_V2: Api = Api { group: "autoscaling", version: "v2", schemas: "io.k8s.api.autoscaling.v2" };
const BATCH: Api = Api { group: "batch", version: "v1", schemas: "io.k8s.api.batch.v1" };
const POLICY: Api = Api { group: "policy", version: "v1", schemas: "io.k8s.api.policy.v1" };
const COORDINATION: Api =
    Api { group: "coordination.k8s.io", version: "v1", schemas: "io.k8s.api.coordination.v1" };
const EVENTS: Api = Api { group: "events.k8s.io", version: "v1", schemas: "io.k8s.api.events.v1" };

const API_REGISTRATION: Api = Api {
    group: "apiregistration.k8s.io",
    version: "v1",
    schemas: "io.k8s.kube-aggregator.pkg.apis.apiregistration.v1",
};
const CERTIFICATES: Api =
    Api { group: "certificates.k8s.io", version: "v1", schemas: "io.k8s.api.certificates.v1" };
const CERTIFICATES_V1ALPHA1: Api =
    Api { group: "certificates.k8s.io", version: "v1alpha1", schemas: "io.k8s.api.certificates.v1alpha1" };
const CERTIFICATES_V1BETA1: Api =
    Api { group: "certificates.k8s.io", version: "v1beta1", schemas: "io.k8s.api.certificates.v1beta1" };
const API_SERVER_INTERNAL: Api = Api {
    group: "internal.apiserver.k8s.io",
    version: "v1alpha1",
    schemas: "io.k8s.api.apiserverinternal.v1alpha1",
};
const STORAGE_MIGRATION: Api = Api {
    group: "storagemigration.k8s.io",
    version: "v1alpha1",
    schemas: "io.k8s.api.storagemigration.v1alpha1",
};
const DISCOVERY: Api = Api { group: "discovery.k8s.io", version: "v1", schemas: "io.k8s.api.discovery.v1" };
const NODE: Api = Api { group: "node.k8s.io", version: "v1", schemas: "io.k8s.api.node.v1" };
const SCHEDULING: Api =
    Api { group: "scheduling.k8s.io", version: "v1", schemas: "io.k8s.api.scheduling.v1" };

/// Builds the entry of a namespaced kind with all verbs, no subresources and the default columns.
fn entry(api: &Api, kind: &str, plural: &str, strategy: impl Strategy) -> Kind {
    let stored_as = match api.group {
        "" => plural.to_owned(),
        group => format!("{group}/{plural}"),
    };
    Kind {
        group: api.group.to_owned(),
        version: api.version.to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        scope: Scope::Namespaced,
        verbs: Verb::ALL.to_vec(),
        subresources: Vec::new(),
        stored_as,
        conversion: None,
        schema: format!("{}.{kind}", api.schemas),
        strategy: Arc::new(strategy),
        semantics: Semantics::default(),
        presentation: Presentation::default(),
        columns: Column::defaults(),
        field_selectors: Vec::new(),
        deprecation: None,
        custom: None,
    }
}

/// Helpers for test tables of errors.
#[cfg(test)]
mod check {
    use serde_json::Value;

    use crate::field::Errors;
    use crate::json::JsonMut;
    use crate::strategy::Strategy;

    /// Formats the reason and field of each error. Objects in these tables need no name.
    pub(super) fn shown(errors: &Errors) -> Vec<String> {
        let unnamed = |field: &str| matches!(field, "metadata.name" | "metadata.namespace");
        let errors = errors.0.iter().filter(|error| !unnamed(&error.field));
        errors.map(|error| format!("{:?} {}", error.reason, error.field)).collect()
    }

    /// Checks the errors of a new object, after defaulting.
    pub(super) fn create(strategy: &impl Strategy, mut object: Value, expected: &[&str]) {
        strategy.default(&mut object);
        strategy.prepare_for_create(&mut object);
        assert_eq!(shown(&strategy.validate(&object)), expected, "{object}");
    }

    /// Checks the errors of an update.
    pub(super) fn update(strategy: &impl Strategy, new: Value, old: &Value, expected: &[&str]) {
        let (mut new, mut old) = (new, old.clone());
        strategy.default(&mut new);
        strategy.default(&mut old);
        // As the server does for every kind with a status subresource.
        new.restore("status", &old);
        strategy.prepare_for_update(&mut new, &old);
        assert_eq!(shown(&strategy.validate_update(&new, &old)), expected, "{new}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    fn every_one() -> Vec<Kind> {
        with(&Features::enabled_by(|_| true))
    }

    #[test]
    fn no_two_kinds_share_a_path() {
        let every_one = every_one();
        let paths: BTreeSet<_> =
            every_one.iter().map(|kind| (kind.api_version(), kind.plural.clone())).collect();
        assert_eq!(paths.len(), every_one.len());
        assert_eq!(every_one.len(), all().len() + 9);
    }

    #[test]
    fn every_table_has_a_column_of_names() {
        for kind in every_one() {
            let named = kind.columns.iter().filter(|column| column.format == "name");
            assert!(named.count() >= 1, "{}", kind.kind);
        }
    }
}
