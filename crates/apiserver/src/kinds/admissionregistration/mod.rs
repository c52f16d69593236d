//! The kinds of `admissionregistration.k8s.io`: webhooks and policies for admission.

use super::Api;

pub mod expressions;
mod matching;
pub mod mutatingwebhookconfiguration;
pub mod validatingadmissionpolicy;
pub mod validatingadmissionpolicybinding;
pub mod validatingwebhookconfiguration;
mod webhook;

const ADMISSION_REGISTRATION: Api = Api {
    group: "admissionregistration.k8s.io",
    version: "v1",
    schemas: "io.k8s.api.admissionregistration.v1",
};
