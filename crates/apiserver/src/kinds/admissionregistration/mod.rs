//! The kinds of `admissionregistration.k8s.io`: webhooks and policies for admission.

use super::Api;

mod binding;
pub mod expressions;
mod matching;
pub mod mutatingadmissionpolicy;
pub mod mutatingadmissionpolicybinding;
pub mod mutatingwebhookconfiguration;
pub(crate) mod policy;
mod url;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;
pub(super) mod webhook;

const ADMISSION_REGISTRATION: Api = Api {
    group: "admissionregistration.k8s.io",
    version: "v1",
    schemas: "io.k8s.api.admissionregistration.v1",
};
const ADMISSION_REGISTRATION_V1BETA1: Api = Api {
    group: "admissionregistration.k8s.io",
    version: "v1beta1",
    schemas: "io.k8s.api.admissionregistration.v1beta1",
};
const ADMISSION_REGISTRATION_V1ALPHA1: Api = Api {
    group: "admissionregistration.k8s.io",
    version: "v1alpha1",
    schemas: "io.k8s.api.admissionregistration.v1alpha1",
};
