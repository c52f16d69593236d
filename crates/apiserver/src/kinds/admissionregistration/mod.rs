//! The kinds of `admissionregistration.k8s.io`.

use super::Api;

pub mod mutatingwebhookconfiguration;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;

const ADMISSION_REGISTRATION: Api = Api {
    group: "admissionregistration.k8s.io",
    version: "v1",
    schemas: "io.k8s.api.admissionregistration.v1",
};
