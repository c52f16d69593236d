//! Type checking: the type of every subexpression, and the overload of every call.

use std::collections::BTreeMap;

use super::ast::{Expr, Fold, Initializer, Kind, Literal};
use super::declarations::{GRAPH_FORMAT, is_of_graphs, overloads};
use super::lexer::Mistake;
use super::literals;
use super::message;
use super::types::{Type, TypeBindings};

/// A type-checked expression.
#[derive(Debug)]
pub(super) struct Checked {
    pub(super) expr: Expr,
    pub(super) ty: Type,
    /// The type of each expression, by ID.
    pub(super) types: BTreeMap<usize, Type>,
    /// The possible overloads of each call, by ID, as indexes into the function's overloads.
    pub(super) overloads: BTreeMap<usize, Vec<usize>>,
    /// The variables of the environment that are used.
    pub(super) used: Vec<String>,
}

/// The maximum number of parts of the type of an expression: many times what people write. Types nest at most this
/// deep, which bounds the stack of functions that walk them.
const LARGEST_TYPE: usize = 500;

pub(super) fn check(
    mut expr: Expr,
    variables: &BTreeMap<String, Type>,
    extensions: Extensions,
) -> Result<Checked, Vec<Mistake>> {
    let mut checker = Checker {
        variables,
        extensions,
        scopes: Vec::new(),
        found: TypeBindings::default(),
        types: BTreeMap::new(),
        overloads: BTreeMap::new(),
        used: Vec::new(),
        mistakes: Vec::new(),
    };
    checker.check(&mut expr);
    if !checker.mistakes.is_empty() {
        checker.mistakes.sort_by_key(|mistake| mistake.at);
        return Err(checker.mistakes);
    }
    let types = checker.types.iter().map(|(id, ty)| (*id, checker.found.resolve(ty, true))).collect();
    let mistakes = literals::mistakes(&expr, &types);
    if !extensions.graph_functions && !mistakes.is_empty() {
        return Err(mistakes);
    }
    let ty = checker.found.resolve(&checker.types[&expr.id], true);
    Ok(Checked { expr, ty, types, overloads: checker.overloads, used: checker.used })
}

struct Checker<'v> {
    variables: &'v BTreeMap<String, Type>,
    extensions: Extensions,
    scopes: Vec<(String, Type)>,
    found: TypeBindings,
    types: BTreeMap<usize, Type>,
    overloads: BTreeMap<usize, Vec<usize>>,
    used: Vec<String>,
    mistakes: Vec<Mistake>,
}

impl Checker<'_> {
    fn mistake(&mut self, at: usize, message: String) -> Type {
        self.mistakes.push(Mistake { at, message });
        Type::Error
    }

    fn check(&mut self, expr: &mut Expr) -> Type {
        self.settle_variable(expr);
        let (id, at) = (expr.id, expr.at);
        let ty = match &mut expr.kind {
            Kind::Literal(literal) => literal_type(literal),
            Kind::Ident(name) => {
                let name = name.clone();
                self.ident(at, &name)
            }
            Kind::Select { operand, field, is_test } => {
                let (field, is_test) = (field.clone(), *is_test);
                let operand = self.check(operand);
                self.select(at, &operand, &field, is_test)
            }
            Kind::Call { .. } => self.call(expr),
            Kind::List(elements) => self.list(elements),
            Kind::Map(entries) => self.map(entries),
            Kind::Message { name, fields } => self.message(at, name, fields),
            Kind::Fold(fold) => self.fold(fold),
        };
        let ty = self.bounded(at, ty);
        self.types.insert(id, ty.clone());
        ty
    }

    /// Rejects a type that would take too long to walk.
    fn bounded(&mut self, at: usize, ty: Type) -> Type {
        match self.found.is_larger(&ty, LARGEST_TYPE) {
            true => {
                self.mistake(at, format!("the type of the expression has more than {LARGEST_TYPE} parts"))
            }
            false => ty,
        }
    }

    fn ident(&mut self, at: usize, name: &str) -> Type {
        if let Some((_, ty)) = self.scopes.iter().rev().find(|(local, _)| local == name) {
            return ty.clone();
        }
        if let Some(ty) = self.variables.get(name) {
            if !self.used.iter().any(|used| used == name) {
                self.used.push(name.to_owned());
            }
            return ty.clone();
        }
        match type_named(name) {
            Some(ty) => Type::Type(std::sync::Arc::new(ty)),
            None => self.mistake(at, format!("undeclared reference to '{name}' (in container '')")),
        }
    }

    fn select(&mut self, at: usize, operand: &Type, field: &str, is_test: bool) -> Type {
        let operand = self.found.resolve(operand, false);
        let (inner, is_optional) = match &operand {
            Type::Optional(of) => ((**of).clone(), true),
            other => (other.clone(), false),
        };
        let ty = match &inner {
            Type::Dyn | Type::Error => inner.clone(),
            Type::Param(_) => {
                self.found.assign(&Type::Dyn, &inner);
                Type::Dyn
            }
            Type::Map(_, value) => (**value).clone(),
            Type::Object(object) => match object.named(field) {
                Some(declared) => declared.ty.clone(),
                None => return self.mistake(at, format!("undefined field '{field}'")),
            },
            Type::Message(name) => match message::field_type(name, field) {
                Some(ty) => ty,
                None => return self.mistake(at, format!("undefined field '{field}'")),
            },
            _ => return self.mistake(at, format!("type '{operand}' does not support field selection")),
        };
        match (is_test, is_optional) {
            (true, _) => Type::Bool,
            (false, true) => Type::optional(ty),
            (false, false) => ty,
        }
    }

    fn list(&mut self, elements: &mut [(Expr, bool)]) -> Type {
        let mut item: Option<Type> = None;
        for (element, is_optional) in elements.iter_mut() {
            let at = element.at;
            let mut ty = self.check(element);
            if *is_optional {
                ty = self.unwrapped(at, &ty);
            }
            item = Some(self.joined(item, &ty, at));
        }
        Type::list(item.unwrap_or_else(|| self.found.fresh()))
    }

    /// Joins the types of list items, which must have a common type, except in resource graphs.
    fn joined(&mut self, before: Option<Type>, ty: &Type, at: usize) -> Type {
        let Some(before) = before else { return ty.clone() };
        match self.found.join(&before, ty) {
            Some(joined) => joined,
            None if self.extensions.graph_functions => Type::Dyn,
            None => {
                let (before, ty) = (self.found.resolve(&before, true), self.found.resolve(ty, true));
                let message = format!("expected type '{before}' but found '{ty}'");
                self.mistake(at, message)
            }
        }
    }

    fn unwrapped(&mut self, at: usize, ty: &Type) -> Type {
        match self.found.resolve(ty, false) {
            Type::Optional(of) => (*of).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let message = format!("expected type 'optional_type({other})' but found '{other}'");
                self.mistake(at, message)
            }
        }
    }

    fn map(&mut self, entries: &mut [(Expr, Expr, bool)]) -> Type {
        let (mut key, mut value): (Option<Type>, Option<Type>) = (None, None);
        for (key_expr, value_expr, is_optional) in entries.iter_mut() {
            let (key_at, value_at) = (key_expr.at, value_expr.at);
            let key_type = self.check(key_expr);
            key = Some(self.joined(key, &key_type, key_at));
            let mut value_type = self.check(value_expr);
            if *is_optional {
                value_type = self.unwrapped(value_at, &value_type);
            }
            value = Some(self.joined(value, &value_type, value_at));
        }
        let key = key.unwrap_or_else(|| self.found.fresh());
        let value = value.unwrap_or_else(|| self.found.fresh());
        Type::map(key, value)
    }

    fn message(&mut self, at: usize, name: &str, fields: &mut [Initializer]) -> Type {
        if !self.extensions.patch_types || !message::is_type(name) {
            let why = match type_named(name) {
                Some(_) => format!("'{name}' is not a message type"),
                None => format!("undeclared reference to '{name}' (in container '')"),
            };
            return self.mistake(at, why);
        }
        for field in fields {
            let (value_at, mut ty) = (field.value.at, self.check(&mut field.value));
            if field.is_optional {
                ty = self.unwrapped(value_at, &ty);
            }
            let Some(expected) = message::field_type(name, &field.name) else {
                // v1.34's wording: it does not report undefined fields of messages.
                let ty = self.found.resolve(&ty, true);
                let why =
                    format!("expected type of field '{}' is '' but provided type is '{ty}'", field.name);
                self.mistake(field.at, why);
                continue;
            };
            if !self.found.assign(&ty, &expected) {
                let ty = self.found.resolve(&ty, true);
                let why = format!(
                    "expected type of field '{}' is '{expected}' but provided type is '{ty}'",
                    field.name
                );
                self.mistake(field.at, why);
            }
        }
        Type::Message(name.into())
    }

    fn fold(&mut self, fold: &mut Fold) -> Type {
        let range_at = fold.range.at;
        let range = self.check(&mut fold.range);
        let init = self.check(&mut fold.init);
        let (first, second) = self.elements(range_at, &range, fold.var2.is_some());
        let outer = self.scopes.len();
        self.scopes.push((fold.accu.clone(), init.clone()));
        self.scopes.push((fold.var.clone(), first));
        if let Some(var2) = &fold.var2 {
            self.scopes.push((var2.clone(), second));
        }
        let condition_at = fold.condition.at;
        let condition = self.check(&mut fold.condition);
        self.expect(condition_at, &condition, &Type::Bool);
        let step_at = fold.step.at;
        let step = self.check(&mut fold.step);
        self.expect(step_at, &step, &init);
        self.scopes.truncate(outer + 1);
        let result = self.check(&mut fold.result);
        self.scopes.truncate(outer);
        self.found.resolve(&result, false)
    }

    /// Returns the types of the variables of a comprehension over `range`.
    fn elements(&mut self, at: usize, range: &Type, has_two: bool) -> (Type, Type) {
        match self.found.resolve(range, false) {
            Type::List(item) if has_two => (Type::Int, (*item).clone()),
            Type::List(item) => ((*item).clone(), Type::Dyn),
            Type::Map(key, value) => ((*key).clone(), (*value).clone()),
            Type::Dyn | Type::Error => (Type::Dyn, Type::Dyn),
            param @ Type::Param(_) => {
                self.found.assign(&Type::Dyn, &param);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                (self.mistake(at, message), Type::Error)
            }
        }
    }

    fn expect(&mut self, at: usize, found: &Type, expected: &Type) {
        if !self.found.assign(found, expected) {
            let [found, expected] = [found, expected].map(|ty| self.shown(ty));
            self.mistake(at, format!("expected type '{expected}' but found '{found}'"));
        }
    }

    /// Formats a type for messages.
    fn shown(&self, ty: &Type) -> String {
        self.found.resolve(ty, true).shown()
    }

    fn call(&mut self, expr: &mut Expr) -> Type {
        self.settle_qualified(expr);
        let (id, at) = (expr.id, expr.at);
        let Kind::Call { target, function, args } = &mut expr.kind else { return Type::Error };
        let function = function.clone();
        if function == "_?._" {
            return self.optional_select(at, args);
        }
        if let Some(literal) = args.iter().find(|arg| !is_sensible(&function, arg)) {
            let (at, message) = (literal.at, format!("invalid {function} argument"));
            return self.mistake(at, message);
        }
        let is_method = target.is_some();
        let mut types: Vec<Type> = Vec::with_capacity(args.len() + 1);
        types.extend(target.as_mut().map(|target| self.check(target)));
        types.extend(args.iter_mut().map(|arg| self.check(arg)));
        if matches!(function.as_str(), "_&&_" | "_||_") {
            let before = self.mistakes.len();
            args.iter().zip(&types).for_each(|(arg, ty)| self.expect(arg.at, ty, &Type::Bool));
            if self.mistakes.len() > before {
                return Type::Bool;
            }
        }
        let ty = self.resolve_call(id, at, &function, is_method, &types);
        if self.extensions.graph_functions
            && let Kind::Call { function, .. } = &mut expr.kind
            && function == "format"
        {
            *function = GRAPH_FORMAT.into();
        }
        ty
    }

    /// Turns a field access into a variable if a variable has that dotted name.
    fn settle_variable(&self, expr: &mut Expr) {
        if !matches!(expr.kind, Kind::Select { is_test: false, .. }) {
            return;
        }
        let Some(path) = dotted(expr).filter(|path| self.variables.contains_key(path.as_str())) else {
            return;
        };
        let first = path.split('.').next().unwrap_or_default();
        if !self.scopes.iter().any(|(name, _)| name == first) {
            expr.kind = Kind::Ident(path);
        }
    }

    /// Turns a method call into a function call if a function has that dotted name.
    fn settle_qualified(&mut self, expr: &mut Expr) {
        let Kind::Call { target: Some(target), function, .. } = &mut expr.kind else { return };
        let Some(path) = dotted(target) else { return };
        let first = path.split('.').next().unwrap_or_default();
        let is_variable =
            self.scopes.iter().any(|(name, _)| name == first) || self.variables.contains_key(first);
        let qualified = format!("{path}.{function}");
        if is_variable || !self.extensions.allow(&qualified) || overloads(&qualified).is_empty() {
            return;
        }
        let Kind::Call { target, function, .. } = &mut expr.kind else { return };
        *target = None;
        *function = qualified;
    }

    fn optional_select(&mut self, at: usize, args: &mut [Expr]) -> Type {
        let [operand, field] = args else { return Type::Error };
        let operand = self.check(operand);
        self.check(field);
        let Kind::Literal(Literal::String(field)) = &field.kind else { return Type::Error };
        match self.select(at, &operand, field, false) {
            already @ Type::Optional(_) => already,
            ty => Type::optional(ty),
        }
    }

    fn resolve_call(
        &mut self,
        id: usize,
        at: usize,
        function: &str,
        is_method: bool,
        types: &[Type],
    ) -> Type {
        let all = overloads(function);
        if all.is_empty() || !self.extensions.allow(function) {
            return self.mistake(at, format!("undeclared reference to '{function}' (in container '')"));
        }
        let (mut fitting, mut result): (Vec<usize>, Option<Type>) = (Vec::new(), None);
        for (index, overload) in all.iter().enumerate() {
            if overload.is_method != is_method || overload.params.len() != types.len() {
                continue;
            }
            let fresh = [self.found.fresh(), self.found.fresh()];
            let params: Vec<Type> =
                overload.params.iter().map(|param| TypeBindings::instantiate(param, &fresh)).collect();
            if !self.found.assign_all(types, &params) {
                continue;
            }
            fitting.push(index);
            let this = self.found.resolve(&TypeBindings::instantiate(&overload.result, &fresh), false);
            result = match result {
                None => Some(this),
                Some(before) if before == this => Some(before),
                // The overload is only known at evaluation.
                Some(_) => Some(Type::Dyn),
            };
        }
        match result {
            Some(result) => {
                self.overloads.insert(id, fitting);
                result
            }
            None => {
                let shown: Vec<String> = types.iter().map(|ty| self.shown(ty)).collect();
                let shown = match (is_method, shown.split_first()) {
                    (true, Some((target, args))) => format!("{target}.({})", args.join(", ")),
                    _ => format!("({})", shown.join(", ")),
                };
                self.mistake(at, format!("found no matching overload for '{function}' applied to '{shown}'"))
            }
        }
    }
}

/// Features that only some expressions have.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extensions {
    /// Whether expressions can construct `Object` and `JSONPatch`.
    pub(super) patch_types: bool,
    /// Whether expressions have the functions of resource graphs, and lists and maps of mixed types.
    pub(super) graph_functions: bool,
}

impl Extensions {
    fn allow(self, function: &str) -> bool {
        (self.patch_types || function != ESCAPE_KEY) && (self.graph_functions || !is_of_graphs(function))
    }
}

/// The function for expressions with patch types.
const ESCAPE_KEY: &str = "jsonpatch.escapeKey";

/// Returns whether a string literal is a valid argument for the function.
fn is_sensible(function: &str, arg: &Expr) -> bool {
    let Kind::Literal(Literal::String(text)) = &arg.kind else { return true };
    match function {
        "matches" => crate::pattern::compile(text).is_ok(),
        "duration" => super::duration::parse(text).is_some(),
        "timestamp" => text.parse::<jiff::Timestamp>().is_ok(),
        _ => true,
    }
}

/// Returns the dotted name `a.b.c` if the expression is one.
fn dotted(expr: &Expr) -> Option<String> {
    match &expr.kind {
        Kind::Ident(name) => Some(name.clone()),
        Kind::Select { operand, field, is_test: false } => Some(format!("{}.{field}", dotted(operand)?)),
        _ => None,
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::Uint(_) => Type::Uint,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

/// Returns the type with this name, if expressions can refer to it.
pub(super) fn type_named(name: &str) -> Option<Type> {
    Some(match name {
        "bool" | "int" | "uint" | "double" | "string" | "bytes" | "null_type" => Type::parse(name),
        "list" => Type::list(Type::Dyn),
        "map" => Type::map(Type::Dyn, Type::Dyn),
        "type" => Type::Type(std::sync::Arc::new(Type::Dyn)),
        _ => return None,
    })
}
