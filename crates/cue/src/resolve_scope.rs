//! Scopes: the names that a struct, clause or pattern declares.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind};
use crate::label::Label;
use crate::syntax::ast;

/// The binding of a name in its scope.
#[derive(Clone, Debug)]
pub(crate) enum Binding {
    Field(Label),
    Let(usize),
    Variable(usize),
    Value,
    LabelOf,
    /// An alias of a field with this computed label.
    Dynamic(Box<ast::Expr>),
}

/// The names of one scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scope(BTreeMap<String, Binding>);

impl Scope {
    pub(crate) fn of(names: Vec<(String, Binding)>) -> Self {
        Self(names.into_iter().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<Binding> {
        self.0.get(name).cloned()
    }
}

/// Collects the names that a struct declares.
pub(crate) fn declare(decls: &[ast::Decl]) -> Result<Scope, Error> {
    let mut scope = Scope::default();
    let mut lets = 0;
    for decl in decls {
        match &decl.kind {
            ast::DeclKind::Field { label, alias, .. } => {
                if let ast::Label::Ident(name) = label {
                    add(&mut scope, decl, name, Binding::Field(Label::ident(name)))?;
                }
                if let Some(alias) = alias
                    && let Some(binding) = aliased(label)
                {
                    add(&mut scope, decl, alias, binding)?;
                }
            }
            ast::DeclKind::Let { name, .. } => {
                add(&mut scope, decl, name, Binding::Let(lets))?;
                lets += 1;
            }
            // `X=expr` as a declaration binds nothing beyond the expression.
            _ => {}
        }
    }
    Ok(scope)
}

fn aliased(label: &ast::Label) -> Option<Binding> {
    match label {
        ast::Label::Ident(name) => Some(Binding::Field(Label::ident(name))),
        ast::Label::Text(text) | ast::Label::Dynamic(_, text) => {
            Some(Binding::Dynamic(Box::new(text.clone())))
        }
        // Bound inside the value only.
        ast::Label::Pattern(..) => None,
    }
}

fn add(scope: &mut Scope, decl: &ast::Decl, name: &str, binding: Binding) -> Result<(), Error> {
    let is_field = matches!(binding, Binding::Field(_));
    match scope.0.get(name) {
        None => {}
        Some(Binding::Field(_)) if is_field => return Ok(()),
        Some(_) => {
            let message = format!("`{name}` is declared twice in this struct");
            let hint = "aliases and `let` need names of their own";
            return Err(Error::new(ErrorKind::Reference, message).at(&decl.position).hint(hint));
        }
    }
    scope.0.insert(name.to_owned(), binding);
    Ok(())
}
