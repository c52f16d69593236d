//! Resolution: binds names to scopes and converts the syntax tree to the resolved tree.
//!
//! A name that no scope of the file declares is looked up in the whole instance when it is built, because other files
//! and injected data may declare it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Position};
use crate::ir;
use crate::label::Label;
use crate::predeclared::predeclared;
use crate::resolve_scope::{Binding, Scope, declare};
use crate::syntax::ast;
use crate::value::{Atom, BoundOp};

/// A resolved file.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) root: Arc<ir::StructLit>,
    /// Names that are looked up in the instance, with their positions.
    pub(crate) free: BTreeMap<String, Position>,
    /// Imported paths, with their positions.
    pub(crate) imports: BTreeMap<String, Position>,
}

/// Resolves a file.
pub(crate) fn resolve(file: &ast::File) -> Result<Resolved, Error> {
    let mut resolver = Resolver { scopes: Vec::new(), imports: BTreeMap::new(), free: BTreeMap::new() };
    for import in &file.imports {
        let path: Arc<str> = import.path.split(':').next().unwrap_or(&import.path).into();
        if resolver.imports.insert(import.name.clone(), path).is_some() {
            let message = format!("`{}` is imported twice", import.name);
            return Err(Error::new(ErrorKind::Reference, message).at(&import.position));
        }
    }
    let position = Position::new(&file.name, 1, 1);
    let root = resolver.literal(&position, &file.decls)?;
    let imports = file.imports.iter().map(|import| {
        (import.path.split(':').next().unwrap_or(&import.path).to_owned(), import.position.clone())
    });
    Ok(Resolved { root: Arc::new(root), free: resolver.free, imports: imports.collect() })
}

/// Resolves an expression outside any file: every name belongs to the instance.
pub(crate) fn resolve_expression(
    expr: &ast::Expr,
) -> Result<(Arc<ir::Expr>, BTreeMap<String, Position>), Error> {
    let mut resolver = Resolver { scopes: Vec::new(), imports: BTreeMap::new(), free: BTreeMap::new() };
    let expr = resolver.expr(expr)?;
    Ok((expr, resolver.free))
}

pub(crate) struct Resolver {
    scopes: Vec<Scope>,
    imports: BTreeMap<String, Arc<str>>,
    free: BTreeMap<String, Position>,
}

type Shared = Arc<ir::Expr>;

impl Resolver {
    fn make(&self, position: &Position, kind: ir::ExprKind) -> Shared {
        Arc::new(ir::Expr { position: position.clone(), kind })
    }

    fn scoped<T>(
        &mut self,
        scope: Scope,
        run: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.scopes.push(scope);
        let result = run(self);
        self.scopes.pop();
        result
    }

    pub(crate) fn literal(
        &mut self,
        position: &Position,
        decls: &[ast::Decl],
    ) -> Result<ir::StructLit, Error> {
        let scope = declare(decls)?;
        self.scoped(scope, |resolver| resolver.body(position, decls))
    }

    fn body(&mut self, position: &Position, decls: &[ast::Decl]) -> Result<ir::StructLit, Error> {
        let mut lit = ir::StructLit {
            position: position.clone(),
            decls: Vec::with_capacity(decls.len()),
            lets: Vec::new(),
            embeds: false,
            is_struct: false,
            is_open: false,
            meta: None,
        };
        for decl in decls {
            self.decl(decl, &mut lit)?;
        }
        lit.is_struct |= !lit.embeds;
        Ok(lit)
    }

    fn decl(&mut self, decl: &ast::Decl, lit: &mut ir::StructLit) -> Result<(), Error> {
        match &decl.kind {
            ast::DeclKind::Field { label, marker, alias, value } => {
                let field = self.field(decl, label, *marker, alias.as_deref(), value)?;
                lit.is_struct |= match &field {
                    ir::Decl::Field(field) => field.label.is_regular(),
                    _ => true,
                };
                lit.decls.push(field);
            }
            ast::DeclKind::Let { value, .. } => {
                let value = self.expr(value)?;
                lit.lets.push(value);
            }
            ast::DeclKind::Embed(expr) => {
                lit.embeds = true;
                let expr = self.expr(expr)?;
                lit.decls.push(ir::Decl::Embed(expr));
            }
            ast::DeclKind::Comprehension(comprehension) => {
                lit.embeds = true;
                let comprehension = self.comprehension(comprehension)?;
                lit.decls.push(ir::Decl::Comprehension(comprehension));
            }
            ast::DeclKind::Ellipsis(None) => lit.is_open = true,
            ast::DeclKind::Ellipsis(Some(expr)) => {
                let message = "`...value` in a struct is not part of CUE yet";
                let hint = "write `...`, or `[string]: value` for every field";
                return Err(Error::new(ErrorKind::Syntax, message).at(&expr.position).hint(hint));
            }
            ast::DeclKind::Attribute => lit.meta = Some(Arc::new(decl.meta.clone())),
        }
        Ok(())
    }

    fn field(
        &mut self,
        decl: &ast::Decl,
        label: &ast::Label,
        marker: ast::Marker,
        alias: Option<&str>,
        value: &ast::Expr,
    ) -> Result<ir::Decl, Error> {
        let meta = Arc::new(decl.meta.clone());
        match label {
            ast::Label::Ident(name) => {
                let value = self.expr(value)?;
                Ok(ir::Decl::Field(ir::Field { label: Label::ident(name), marker, value, meta }))
            }
            ast::Label::Text(text) => match plain(text) {
                Some(name) => {
                    let value = self.expr(value)?;
                    Ok(ir::Decl::Field(ir::Field { label: Label::regular(name), marker, value, meta }))
                }
                None => self.dynamic(None, text, marker, value, meta),
            },
            ast::Label::Dynamic(name, label) => self.dynamic(name.as_deref(), label, marker, value, meta),
            ast::Label::Pattern(name, pattern) => {
                let pattern = self.expr(pattern)?;
                let mut names = Vec::new();
                names.extend(name.as_deref().map(|name| (name.to_owned(), Binding::LabelOf)));
                names.extend(alias.map(|alias| (alias.to_owned(), Binding::Value)));
                let value = self.scoped(Scope::of(names), |resolver| resolver.expr(value))?;
                Ok(ir::Decl::Pattern(Arc::new(ir::Pattern { pattern, value, meta })))
            }
        }
    }

    fn dynamic(
        &mut self,
        name: Option<&str>,
        label: &ast::Expr,
        marker: ast::Marker,
        value: &ast::Expr,
        meta: Arc<ast::Meta>,
    ) -> Result<ir::Decl, Error> {
        let label = self.expr(label)?;
        let scoped = name.is_some();
        let value = match name {
            Some(name) => {
                let scope = Scope::of(vec![(name.to_owned(), Binding::LabelOf)]);
                self.scoped(scope, |resolver| resolver.expr(value))?
            }
            None => self.expr(value)?,
        };
        Ok(ir::Decl::Dynamic(Arc::new(ir::Dynamic { label, marker, value, scoped, meta })))
    }

    fn comprehension(&mut self, written: &ast::Comprehension) -> Result<Arc<ir::Comprehension>, Error> {
        let depth = self.scopes.len();
        let mut clauses = Vec::new();
        let result = self.clauses(written, &mut clauses);
        self.scopes.truncate(depth);
        let body = Arc::new(result?);
        Ok(Arc::new(ir::Comprehension { clauses, body }))
    }

    fn clauses(
        &mut self,
        written: &ast::Comprehension,
        clauses: &mut Vec<ir::Clause>,
    ) -> Result<ir::StructLit, Error> {
        for clause in &written.clauses {
            match clause {
                ast::Clause::For { key, value, source } => {
                    let source = self.expr(source)?;
                    clauses.push(ir::Clause::For { has_key: key.is_some(), source });
                    let mut names = vec![(value.clone(), Binding::Variable(1))];
                    names.extend(key.iter().map(|key| (key.clone(), Binding::Variable(0))));
                    self.scopes.push(Scope::of(names));
                }
                ast::Clause::If(condition) => clauses.push(ir::Clause::If(self.expr(condition)?)),
                ast::Clause::Let(name, value) => {
                    clauses.push(ir::Clause::Let(self.expr(value)?));
                    self.scopes.push(Scope::of(vec![(name.clone(), Binding::Variable(0))]));
                }
            }
        }
        self.literal(&written.position, &written.body)
    }

    pub(crate) fn exprs(&mut self, exprs: &[ast::Expr]) -> Result<Vec<Shared>, Error> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn optional(&mut self, expr: &Option<Box<ast::Expr>>) -> Result<Option<Shared>, Error> {
        expr.as_ref().map(|expr| self.expr(expr)).transpose()
    }

    pub(crate) fn expr(&mut self, expr: &ast::Expr) -> Result<Shared, Error> {
        use ast::ExprKind as From;
        use ir::ExprKind as To;
        let kind = match &expr.kind {
            From::Ident(name) => return self.name(name, &expr.position),
            From::Null => To::Atom(Atom::Null),
            From::Bool(value) => To::Atom(Atom::Bool(*value)),
            From::Number(number) => To::Atom(Atom::Number(*number)),
            From::Text { parts, bytes } => self.text(parts, *bytes)?,
            From::Bottom => To::Bottom,
            From::Struct(decls) => To::Struct(Arc::new(self.literal(&expr.position, decls)?)),
            From::List(elements) => self.list(&expr.position, elements)?,
            From::Unary(op, operand) => self.unary(op, operand, &expr.position)?,
            From::Binary(op, left, right) => To::Binary(op, self.expr(left)?, self.expr(right)?),
            From::And(all) => To::And(self.exprs(all)?),
            From::Or(all) => self.disjunction(all)?,
            From::Select(base, ast::Selector::Ident(name)) => {
                To::Select(self.expr(base)?, Label::ident(name))
            }
            From::Select(base, ast::Selector::Text(name)) => {
                To::Select(self.expr(base)?, Label::regular(name.as_str()))
            }
            From::Index(base, index) => To::Index(self.expr(base)?, self.expr(index)?),
            From::Slice(base, low, high) => {
                To::Slice(self.expr(base)?, self.optional(low)?, self.optional(high)?)
            }
            From::Call(function, arguments) => To::Call(self.expr(function)?, self.exprs(arguments)?),
            From::Paren(inner) => return self.expr(inner),
            From::Alias(name, value) => {
                let scope = Scope::of(vec![(name.clone(), Binding::Value)]);
                To::Alias(self.scoped(scope, |resolver| resolver.expr(value))?)
            }
        };
        Ok(self.make(&expr.position, kind))
    }

    fn text(&mut self, parts: &[ast::Part], bytes: bool) -> Result<ir::ExprKind, Error> {
        if let [ast::Part::Literal(literal)] = parts {
            return Ok(ir::ExprKind::Atom(if bytes {
                Atom::Bytes(literal.as_slice().into())
            } else {
                Atom::text(String::from_utf8_lossy(literal).into_owned())
            }));
        }
        let parts = parts.iter().map(|part| match part {
            ast::Part::Literal(bytes) => Ok(ir::Part::Literal(bytes.clone())),
            ast::Part::Expression(expr) => self.expr(expr).map(ir::Part::Expression),
        });
        Ok(ir::ExprKind::Interpolation(parts.collect::<Result<_, Error>>()?, bytes))
    }

    fn list(&mut self, position: &Position, elements: &[ast::Element]) -> Result<ir::ExprKind, Error> {
        let mut list = ir::ListLit {
            position: position.clone(),
            elements: Vec::new(),
            tail: None,
            has_comprehension: false,
        };
        for element in elements {
            match element {
                ast::Element::Expr(expr) => list.elements.push(ir::Element::Expr(self.expr(expr)?)),
                ast::Element::Comprehension(comprehension) => {
                    list.has_comprehension = true;
                    list.elements.push(ir::Element::Comprehension(self.comprehension(comprehension)?));
                }
                ast::Element::Ellipsis(tail) => {
                    list.tail = Some(tail.as_ref().map(|tail| self.expr(tail)).transpose()?);
                }
            }
        }
        Ok(ir::ExprKind::List(Arc::new(list)))
    }

    fn unary(&mut self, op: &str, operand: &ast::Expr, at: &Position) -> Result<ir::ExprKind, Error> {
        if op == "*" {
            let message = "a default mark `*` is only allowed before an alternative of a disjunction";
            return Err(Error::new(ErrorKind::Syntax, message).at(at).hint("write `*default | other`"));
        }
        let operand = self.expr(operand)?;
        Ok(match op {
            "!" => ir::ExprKind::Not(operand),
            "+" => ir::ExprKind::Sign(false, operand),
            "-" => ir::ExprKind::Sign(true, operand),
            _ => match BoundOp::of(op) {
                Some(op) => ir::ExprKind::Bound(op, operand),
                None => return Ok(ir::ExprKind::And(vec![operand])),
            },
        })
    }

    /// Collects alternatives and their marks.
    fn disjunction(&mut self, all: &[ast::Expr]) -> Result<ir::ExprKind, Error> {
        let mut alternatives = Vec::with_capacity(all.len());
        let mut marked = false;
        for expr in all {
            let (mark, inner) = match &expr.kind {
                ast::ExprKind::Unary("*", inner) => (true, &**inner),
                _ => (false, expr),
            };
            marked |= mark;
            alternatives.push((mark, self.expr(inner)?));
        }
        Ok(ir::ExprKind::Or(Arc::new(ir::Disjunction { alternatives, marked })))
    }

    fn name(&mut self, name: &str, position: &Position) -> Result<Shared, Error> {
        if name == "_" {
            return Ok(self.make(position, ir::ExprKind::Top));
        }
        if let Some(reference) = self.find(name)? {
            return Ok(self.make(position, ir::ExprKind::Reference(reference)));
        }
        if let Some(path) = self.imports.get(name) {
            return Ok(self.make(position, ir::ExprKind::Import(path.clone())));
        }
        if let Some(kind) = predeclared(name) {
            return Ok(self.make(position, kind.into_expr(position)));
        }
        self.free.entry(name.to_owned()).or_insert_with(|| position.clone());
        let reference = ir::Reference::Root { label: Label::ident(name) };
        Ok(self.make(position, ir::ExprKind::Reference(reference)))
    }

    fn find(&mut self, name: &str) -> Result<Option<ir::Reference>, Error> {
        let found = self.scopes.iter().rev().enumerate().find_map(|(up, scope)| Some((up, scope.get(name)?)));
        let Some((up, binding)) = found else { return Ok(None) };
        Ok(Some(match binding {
            Binding::Field(label) => ir::Reference::Field { up, label },
            Binding::Let(index) => ir::Reference::Let { up, index },
            Binding::Variable(index) => ir::Reference::Variable { up, index },
            Binding::Value => ir::Reference::Value { up },
            Binding::LabelOf => ir::Reference::LabelOf { up },
            Binding::Dynamic(label) => {
                // The label is resolved in the struct that declares it.
                let inner = self.scopes.split_off(self.scopes.len() - up);
                let label = self.expr(&label);
                self.scopes.extend(inner);
                ir::Reference::Dynamic { up, label: label? }
            }
        }))
    }
}

/// Returns the text of a label without interpolation.
fn plain(expr: &ast::Expr) -> Option<String> {
    match &expr.kind {
        ast::ExprKind::Text { parts, bytes: false } => match parts.as_slice() {
            [ast::Part::Literal(bytes)] => String::from_utf8(bytes.clone()).ok(),
            _ => None,
        },
        _ => None,
    }
}
