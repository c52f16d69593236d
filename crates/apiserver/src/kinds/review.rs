//! The review kinds: who the client is, whose a token is, who may do what.

use super::{Api, entry};
use crate::kind::{Kind, Scope, Verb};
use crate::strategy::{Creation, Lifecycle, ReviewKind, Semantics, Validation};

const AUTHENTICATION: Api =
    Api { group: "authentication.k8s.io", version: "v1", schemas: "io.k8s.api.authentication.v1" };
const AUTHORIZATION: Api =
    Api { group: "authorization.k8s.io", version: "v1", schemas: "io.k8s.api.authorization.v1" };

pub fn self_subject() -> Kind {
    of_cluster(&AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", ReviewKind::SelfSubject)
}

pub fn token() -> Kind {
    of_cluster(&AUTHENTICATION, "TokenReview", "tokenreviews", ReviewKind::Token)
}

pub fn local_subject_access() -> Kind {
    let review = ReviewKind::LocalSubjectAccess;
    of_namespace(&AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", review)
}

pub fn self_subject_access() -> Kind {
    of_cluster(
        &AUTHORIZATION,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        ReviewKind::SelfSubjectAccess,
    )
}

pub fn self_subject_rules() -> Kind {
    of_cluster(
        &AUTHORIZATION,
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        ReviewKind::SelfSubjectRules,
    )
}

pub fn subject_access() -> Kind {
    of_cluster(&AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", ReviewKind::SubjectAccess)
}

fn of_cluster(api: &Api, kind: &str, plural: &str, review: ReviewKind) -> Kind {
    Kind { scope: Scope::Cluster, ..of_namespace(api, kind, plural, review) }
}

fn of_namespace(api: &Api, kind: &str, plural: &str, review: ReviewKind) -> Kind {
    let semantics = Semantics { creation: Creation::Review(review), ..Semantics::default() };
    Kind { verbs: vec![Verb::Create], semantics, ..entry(api, kind, plural, ReviewStrategy) }
}

struct ReviewStrategy;

impl Lifecycle for ReviewStrategy {}

impl Validation for ReviewStrategy {}
