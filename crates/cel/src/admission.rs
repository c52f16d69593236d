//! The environment for expressions in webhooks and admission policies: the request, its objects and their namespace.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::{Declared, Environment, Object, Type};

/// The types of the objects that expressions can refer to.
#[derive(Clone, Debug, Default)]
pub struct Types {
    /// The object's type. `None`: any type.
    pub object: Option<Declared>,
    pub parameters: Option<Declared>,
    pub has_parameters: bool,
    pub has_authorizer: bool,
}

/// Declares the variables that every expression can use.
pub fn environment(types: &Types) -> Environment {
    let plain = |ty: Type| Arc::new(Declared::plain(ty));
    let of = |known: &Option<Declared>| Arc::new(known.clone().unwrap_or_else(|| Declared::plain(Type::Dyn)));
    let mut environment = Environment::new()
        .with("object", of(&types.object))
        .with("oldObject", of(&types.object))
        .with("namespaceObject", Arc::new(namespace()))
        .with("request", Arc::new(request()));
    if types.has_parameters {
        environment = environment.with("params", of(&types.parameters));
    }
    if types.has_authorizer {
        environment =
            environment.with("authorizer", plain(Type::opaque("kubernetes.authorization.Authorizer"))).with(
                "authorizer.requestResource",
                plain(Type::opaque("kubernetes.authorization.ResourceCheck")),
            );
    }
    environment
}

/// Declares an object with these fields.
pub fn object(name: &str, fields: BTreeMap<String, Declared>) -> Declared {
    Declared::plain(Type::Object(Arc::new(Object { name: name.to_owned(), fields })))
}

fn fields(of: &[(&str, Declared)]) -> BTreeMap<String, Declared> {
    of.iter().map(|(name, declared)| ((*name).to_owned(), declared.clone())).collect()
}

fn text() -> Declared {
    Declared::plain(Type::String)
}

fn texts() -> Declared {
    Declared::plain(Type::list(Type::String))
}

/// Declares the admission request.
fn request() -> Declared {
    let named = |name: &str, last: &str| {
        object(name, fields(&[("group", text()), ("version", text()), (last, text())]))
    };
    let kind = named("kubernetes.GroupVersionKind", "kind");
    let resource = named("kubernetes.GroupVersionResource", "resource");
    let extra = Declared::plain(Type::map(Type::String, Type::list(Type::String)));
    let user = [("username", text()), ("uid", text()), ("groups", texts()), ("extra", extra)];
    let request = [
        ("kind", kind.clone()),
        ("resource", resource.clone()),
        ("subResource", text()),
        ("requestKind", kind),
        ("requestResource", resource),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", object("kubernetes.UserInfo", fields(&user))),
        ("dryRun", Declared::plain(Type::Bool)),
        ("options", Declared::plain(Type::Dyn)),
    ];
    object("kubernetes.AdmissionRequest", fields(&request))
}

/// Declares the object's namespace.
fn namespace() -> Declared {
    let time = || Declared::plain(Type::Timestamp);
    let number = || Declared::plain(Type::Int);
    let pairs = || Declared::plain(Type::map(Type::String, Type::String));
    let condition = [
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", time()),
        ("message", text()),
        ("reason", text()),
    ];
    let condition = object("kubernetes.NamespaceCondition", fields(&condition));
    let status = [("conditions", Declared::plain(Type::list(condition.ty.clone()))), ("phase", text())];
    let metadata = [
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", pairs()),
        ("annotations", pairs()),
        ("UID", text()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", number()),
        ("deletionTimestamp", time()),
        ("generation", number()),
        ("resourceVersion", text()),
        ("finalizers", texts()),
    ];
    let parts = [
        ("metadata", object("kubernetes.NamespaceMetadata", fields(&metadata))),
        ("spec", object("kubernetes.NamespaceSpec", fields(&[("finalizers", texts())]))),
        ("status", object("kubernetes.NamespaceStatus", fields(&status))),
    ];
    object("kubernetes.Namespace", fields(&parts))
}
