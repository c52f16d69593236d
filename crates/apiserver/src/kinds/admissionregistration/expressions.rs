//! Compiles the CEL expressions of webhooks and policies, both to validate and to evaluate them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cel::admission::{Types, environment, object};
use crate::cel::{Declared, Environment, Program, Type};
use crate::field::{Errors, Path};

/// Additional variables and types of an expression, besides the request and its objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraVariables {
    pub parameters: bool,
    pub authorizer: bool,
    /// The types that mutations are made of.
    pub patch_types: bool,
}

/// Compiles expressions, each of which may refer to the variables before it.
pub struct Compiler {
    /// The policy's variables so far; `None` if it cannot have any.
    variables: Option<BTreeMap<String, Declared>>,
}

impl Compiler {
    /// Creates a compiler for a policy with variables, or for something without.
    pub fn new(has_variables: bool) -> Self {
        Self { variables: has_variables.then(BTreeMap::new) }
    }

    fn environment(&self, about: ExtraVariables) -> Environment {
        let types =
            Types { has_parameters: about.parameters, has_authorizer: about.authorizer, ..Types::default() };
        let mut environment = environment(&types);
        if let Some(variables) = &self.variables {
            let variables = object("kubernetes.variables", variables.clone());
            environment = environment.with("variables", Arc::new(variables));
        }
        if about.patch_types { environment.with_patch_types() } else { environment }
    }

    /// Validates an expression that must evaluate to one of some types.
    pub fn check(
        &self,
        text: &str,
        about: ExtraVariables,
        types: &[Type],
        path: &Path<'_>,
        errors: &mut Errors,
    ) {
        if let Err(why) = self.compile(text, about, types) {
            errors.invalid(path, text, why);
        }
    }

    /// Compiles an expression that must evaluate to one of some types; to any if there are none.
    pub fn compile(&self, text: &str, about: ExtraVariables, types: &[Type]) -> Result<Program, String> {
        let program = self.environment(about).compile(text);
        let program = program.map_err(|why| format!("compilation failed: {why}"))?;
        let output = program.output();
        match types {
            types if types.is_empty() || types.contains(output) => Ok(program),
            [only] => Err(format!("must evaluate to {only} but got {output}")),
            several => {
                let names: Vec<String> = several.iter().map(ToString::to_string).collect();
                Err(format!("must evaluate to one of [{}] but got {output}", names.join(" ")))
            }
        }
    }

    /// Compiles a variable, and makes it available to later expressions even if that fails.
    pub fn declare(&mut self, name: &str, text: &str, about: ExtraVariables) -> Result<Program, String> {
        let program = self.compile(text, about, &[]);
        let output = program.as_ref().map_or(Type::Dyn, |program| program.output().clone());
        if let Some(variables) = &mut self.variables {
            variables.insert(name.to_owned(), Declared::plain(output));
        }
        program
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, about: ExtraVariables, types: &[Type]) -> Option<String> {
        Compiler::new(false).compile(text, about, types).err()
    }

    #[test]
    fn an_expression_must_return_the_expected_type() {
        let about = ExtraVariables::default();
        assert_eq!(problem("object.metadata.name == 'a'", about, &[Type::Bool]), None);
        let why = problem("1 + 1", about, &[Type::Bool]);
        assert_eq!(why.as_deref(), Some("must evaluate to bool but got int"));
        assert!(
            problem("object.", about, &[Type::Bool])
                .is_some_and(|why| why.starts_with("compilation failed: ERROR"))
        );
    }

    #[test]
    fn a_pod_certificate_request_matches_its_pod() {
        let about = ExtraVariables::default();
        assert_eq!(problem("request.userInfo.groups.exists(g, g == 'x')", about, &[Type::Bool]), None);
        assert!(problem("request.nothing == 'x'", about, &[Type::Bool]).is_some());
        assert!(problem("namespaceObject.metadata.labels['a'] == 'x'", about, &[Type::Bool]).is_none());
        assert!(problem("params.x == 1", about, &[Type::Bool]).is_some());
        assert!(
            problem("params.x == 1", ExtraVariables { parameters: true, ..about }, &[Type::Bool]).is_none()
        );
    }

    #[test]
    fn variables_are_in_scope_after_their_declaration() {
        let mut compiler = Compiler::new(true);
        let about = ExtraVariables::default();
        assert!(compiler.compile("variables.n > 1", about, &[Type::Bool]).is_err());
        compiler.declare("n", "1 + 1", about).unwrap();
        assert!(compiler.compile("variables.n > 1", about, &[Type::Bool]).is_ok());
        assert!(compiler.compile("variables.n == 'a'", about, &[Type::Bool]).is_err());
        assert!(compiler.declare("m", "variables.", about).is_err());
        assert!(compiler.compile("variables.m == 1", about, &[Type::Bool]).is_ok());
    }
}
