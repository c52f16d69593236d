//! The review kinds: who the client is, whose a token is, who may do what.

use super::{Api, entry};
use crate::kind::{Kind, Scope, Verb};
use crate::strategy::{Creation, Lifecycle, Question, Semantics, Validation};

const AUTHENTICATION: Api =
    Api { group: "authentication.k8s.io", version: "v1", schemas: "io.k8s.api.authentication.v1" };
const AUTHORIZATION: Api =
    Api { group: "authorization.k8s.io", version: "v1", schemas: "io.k8s.api.authorization.v1" };

pub fn self_subject() -> Kind {
    of_cluster(&AUTHENTICATION, "SelfSubjectReview", "selfsubjectreviews", Question::WhoAmI)
}

pub fn token() -> Kind {
    of_cluster(&AUTHENTICATION, "TokenReview", "tokenreviews", Question::WhoseToken)
}

pub fn local_subject_access() -> Kind {
    let question = Question::MaySubjectHere;
    of_namespace(&AUTHORIZATION, "LocalSubjectAccessReview", "localsubjectaccessreviews", question)
}

pub fn self_subject_access() -> Kind {
    of_cluster(&AUTHORIZATION, "SelfSubjectAccessReview", "selfsubjectaccessreviews", Question::MayI)
}

pub fn self_subject_rules() -> Kind {
    of_cluster(&AUTHORIZATION, "SelfSubjectRulesReview", "selfsubjectrulesreviews", Question::WhatMayI)
}

pub fn subject_access() -> Kind {
    of_cluster(&AUTHORIZATION, "SubjectAccessReview", "subjectaccessreviews", Question::MaySubject)
}

fn of_cluster(api: &Api, kind: &str, plural: &str, question: Question) -> Kind {
    Kind { scope: Scope::Cluster, ..of_namespace(api, kind, plural, question) }
}

fn of_namespace(api: &Api, kind: &str, plural: &str, question: Question) -> Kind {
    let semantics = Semantics { creation: Creation::Answer(question), ..Semantics::default() };
    Kind { verbs: vec![Verb::Create], semantics, ..entry(api, kind, plural, Asked) }
}

struct Asked;

impl Lifecycle for Asked {}

impl Validation for Asked {}
