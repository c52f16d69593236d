//! The expressions of webhooks and policies: what they can refer to, and whether they make sense.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cel::{Declared, Environment, Object, Type};
use crate::field::{Errors, Path};

/// What an expression may be about beside the request and its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct About {
    pub parameters: bool,
    pub authorizer: bool,
}

/// Compiles expressions, each of which may refer to the variables before it.
pub struct Compiler {
    /// The variables of the policy so far, if it has any.
    variables: Option<BTreeMap<String, Declared>>,
}

impl Compiler {
    /// For expressions of a policy that has variables, or of something that has none.
    pub fn new(has_variables: bool) -> Self {
        Self { variables: has_variables.then(BTreeMap::new) }
    }

    fn environment(&self, about: About) -> Environment {
        let mut environment = environment(about);
        if let Some(variables) = &self.variables {
            let variables = object("kubernetes.variables", variables.clone());
            environment = environment.with("variables", Arc::new(variables));
        }
        environment
    }

    /// Checks an expression that has to give a value of one of some types.
    pub fn check(&self, text: &str, about: About, types: &[Type], path: &Path<'_>, errors: &mut Errors) {
        if let Err(why) = self.compile(text, about, types) {
            errors.invalid(path, text, why);
        }
    }

    fn compile(&self, text: &str, about: About, types: &[Type]) -> Result<Type, String> {
        let program = self.environment(about).compile(text);
        let program = program.map_err(|why| format!("compilation failed: {why}"))?;
        let output = program.output();
        match types {
            types if types.is_empty() || types.contains(output) => Ok(output.clone()),
            [only] => Err(format!("must evaluate to {only} but got {output}")),
            several => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(format!("must evaluate to one of [{}] but got {output}", names.join(" ")))
            }
        }
    }

    /// Checks a variable, and lets the expressions after it refer to it.
    pub fn declare(&mut self, name: &str, text: &str, about: About, path: &Path<'_>, errors: &mut Errors) {
        let output = self.compile(text, about, &[]).unwrap_or_else(|why| {
            errors.invalid(path, text, why);
            Type::Dyn
        });
        if let Some(variables) = &mut self.variables {
            variables.insert(name.to_owned(), Declared::plain(output));
        }
    }
}

/// What every expression can refer to.
fn environment(about: About) -> Environment {
    let plain = |ty: Type| Arc::new(Declared::plain(ty));
    let mut environment = Environment::new()
        .with("object", plain(Type::Dyn))
        .with("oldObject", plain(Type::Dyn))
        .with("namespaceObject", Arc::new(namespace()))
        .with("request", Arc::new(request()));
    if about.parameters {
        environment = environment.with("params", plain(Type::Dyn));
    }
    if about.authorizer {
        environment =
            environment.with("authorizer", plain(Type::opaque("kubernetes.authorization.Authorizer"))).with(
                "authorizer.requestResource",
                plain(Type::opaque("kubernetes.authorization.ResourceCheck")),
            );
    }
    environment
}

fn object(name: &str, fields: BTreeMap<String, Declared>) -> Declared {
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

/// The request as admission sees it.
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

/// The namespace that the object is in.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, about: About, types: &[Type]) -> Option<String> {
        Compiler::new(false).compile(text, about, types).err()
    }

    #[test]
    fn an_expression_gives_what_it_is_asked_for() {
        let about = About::default();
        assert_eq!(problem("object.metadata.name == 'a'", about, &[Type::Bool]), None);
        let why = problem("1 + 1", about, &[Type::Bool]);
        assert_eq!(why.as_deref(), Some("must evaluate to bool but got int"));
        assert!(
            problem("object.", about, &[Type::Bool])
                .is_some_and(|why| why.starts_with("compilation failed: ERROR"))
        );
    }

    #[test]
    fn what_is_known_of_a_request_is_checked() {
        let about = About::default();
        assert_eq!(problem("request.userInfo.groups.exists(g, g == 'x')", about, &[Type::Bool]), None);
        assert!(problem("request.nothing == 'x'", about, &[Type::Bool]).is_some());
        assert!(problem("namespaceObject.metadata.labels['a'] == 'x'", about, &[Type::Bool]).is_none());
        assert!(problem("params.x == 1", about, &[Type::Bool]).is_some());
        assert!(problem("params.x == 1", About { parameters: true, ..about }, &[Type::Bool]).is_none());
    }

    #[test]
    fn variables_are_known_from_where_they_are_declared() {
        let mut compiler = Compiler::new(true);
        let (mut errors, path) = (Errors::default(), Path::root("x"));
        let about = About::default();
        assert!(compiler.compile("variables.n > 1", about, &[Type::Bool]).is_err());
        compiler.declare("n", "1 + 1", about, &path, &mut errors);
        assert!(compiler.compile("variables.n > 1", about, &[Type::Bool]).is_ok());
        assert!(compiler.compile("variables.n == 'a'", about, &[Type::Bool]).is_err());
        compiler.declare("m", "variables.", about, &path, &mut errors);
        assert_eq!(errors.0.len(), 1);
    }
}
