//! Estimates the maximum cost of an expression before evaluation, from the types and size limits of its parts.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ast::{Expr, Fold, Kind, Literal};
use super::check::Checked;
use super::cost::{LETTER, PATTERN_LETTER};
use super::declarations::{GRAPH_FORMAT, overloads};
use super::estimate_path::Route;
use super::eval::{LIST_COST, MESSAGE_COST};
use super::types::{Declared, Type};

/// A range from minimum to maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Span {
    const NOTHING: Self = Self { min: 0, max: 0 };
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    const fn exactly(size: u64) -> Self {
        Self { min: size, max: size }
    }

    fn add(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    fn scaled(self, factor: f64) -> Self {
        let scaled = |size: u64| {
            let product = (size as f64 * factor).ceil();
            if product >= 1.8446744073709552e19 { u64::MAX } else { product as u64 }
        };
        Self { min: scaled(self.min), max: scaled(self.max) }
    }

    fn union(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }
}

/// Estimates the cost of an expression, given the declarations of its variables.
pub(super) fn estimate(checked: &Checked, variables: &BTreeMap<String, Arc<Declared>>) -> Span {
    let mut coster = Coster {
        checked,
        variables,
        paths: BTreeMap::new(),
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
        locals: Vec::new(),
    };
    coster.cost(&checked.expr)
}

/// The possible sizes of the keys and values of a list or map.
#[derive(Clone, Copy)]
struct Entries {
    key: Span,
    value: Span,
    is_list: bool,
}

struct Local {
    name: String,
    path: Route,
    size: Option<Span>,
    entries: Option<Entries>,
}

struct Coster<'c> {
    checked: &'c Checked,
    variables: &'c BTreeMap<String, Arc<Declared>>,
    paths: BTreeMap<usize, Route>,
    sizes: BTreeMap<usize, Span>,
    entries: BTreeMap<usize, Entries>,
    locals: Vec<Local>,
}

const ITEMS: &str = "@items";
const VALUES: &str = "@values";
const KEYS: &str = "@keys";

impl Coster<'_> {
    fn cost(&mut self, expr: &Expr) -> Span {
        match &expr.kind {
            Kind::Literal(_) => Span::NOTHING,
            Kind::Ident(name) => {
                let path = self.local(name).map_or_else(|| Route::of(name), |local| local.path.clone());
                self.paths.insert(expr.id, path);
                Span::exactly(1)
            }
            Kind::Select { operand, field, is_test } => self.select(expr, operand, field, *is_test),
            Kind::Call { target, function, args } => self.call(expr, target.as_deref(), function, args),
            Kind::List(elements) => self.list(expr, elements),
            Kind::Map(pairs) => self.map(expr, pairs),
            Kind::Message { fields, .. } => {
                let sum = fields.iter().fold(Span::NOTHING, |sum, field| sum.add(self.cost(&field.value)));
                sum.add(Span::exactly(MESSAGE_COST))
            }
            Kind::Fold(fold) if is_bind(fold) => self.bind(expr, fold),
            Kind::Fold(fold) => self.fold(expr, fold),
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    fn ty(&self, expr: &Expr) -> &Type {
        self.checked.types.get(&expr.id).unwrap_or(&Type::Dyn)
    }

    fn path(&self, expr: &Expr) -> Route {
        if let Kind::Ident(name) = &expr.kind
            && let Some(local) = self.local(name)
        {
            return local.path.clone();
        }
        self.paths.get(&expr.id).cloned().unwrap_or_default()
    }

    fn select(&mut self, expr: &Expr, operand: &Expr, field: &str, is_test: bool) -> Span {
        let mut sum = self.cost(operand);
        if is_test {
            return sum;
        }
        if matches!(self.ty(operand), Type::Map(..) | Type::Object(_) | Type::Param(_)) {
            sum = sum.add(Span::exactly(1));
        }
        let path = self.path(operand).then(field);
        self.paths.insert(expr.id, path);
        sum
    }

    fn list(&mut self, expr: &Expr, elements: &[(Expr, bool)]) -> Span {
        let mut sum = Span::NOTHING;
        let mut value = Span { min: if elements.is_empty() { 0 } else { u64::MAX }, max: 0 };
        for (element, _) in elements {
            sum = sum.add(self.cost(element));
            value = value.union(self.size_or_unknown(element));
        }
        self.entries.insert(expr.id, Entries { key: Span::exactly(1), value, is_list: true });
        sum.add(Span::exactly(10))
    }

    fn map(&mut self, expr: &Expr, pairs: &[(Expr, Expr, bool)]) -> Span {
        let mut sum = Span::NOTHING;
        let least = Span { min: if pairs.is_empty() { 0 } else { u64::MAX }, max: 0 };
        let (mut key_size, mut value_size) = (least, least);
        for (key, value, _) in pairs {
            sum = sum.add(self.cost(key)).add(self.cost(value));
            key_size = key_size.union(self.size_or_unknown(key));
            value_size = value_size.union(self.size_or_unknown(value));
        }
        self.entries.insert(expr.id, Entries { key: key_size, value: value_size, is_list: false });
        sum.add(Span::exactly(30))
    }

    fn push_local(&mut self, name: &str, expr: &Expr) {
        let (path, size, entries) = (self.path(expr), self.size(expr), self.entries_of(expr));
        self.locals.push(Local { name: name.to_owned(), path, size, entries });
    }

    fn push_element(&mut self, name: &str, range: &Expr, is_value: bool) {
        let entries = self.entries_of(range);
        let is_list =
            entries.map_or_else(|| matches!(self.ty(range), Type::List(_)), |entries| entries.is_list);
        let (step, size) = match (is_list, is_value) {
            (true, true) => (ITEMS, entries.map(|entries| entries.value)),
            (true, false) => ("@indices", entries.map(|entries| entries.key)),
            (false, true) => (VALUES, entries.map(|entries| entries.value)),
            (false, false) => (KEYS, entries.map(|entries| entries.key)),
        };
        let path = self.path(range).then(step);
        self.locals.push(Local { name: name.to_owned(), path, size, entries: None });
    }

    fn fold(&mut self, expr: &Expr, fold: &Fold) -> Span {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        let outer = self.locals.len();
        self.push_local(&fold.accu, &fold.init);
        match &fold.var2 {
            Some(var2) => {
                self.push_element(&fold.var, &fold.range, false);
                self.push_element(var2, &fold.range, true);
            }
            None => {
                let entries = self.entries_of(&fold.range);
                let is_list = entries
                    .map_or_else(|| matches!(self.ty(&fold.range), Type::List(_)), |entries| entries.is_list);
                self.push_element(&fold.var, &fold.range, is_list);
            }
        }
        let each = self.cost(&fold.condition).add(self.cost(&fold.step));
        self.locals.truncate(outer + 1);
        sum = sum.add(self.cost(&fold.result));
        self.locals.truncate(outer);
        let count = self.size_or_unknown(&fold.range);
        sum = sum.add(count.times(each));
        match &fold.init.kind {
            Kind::Literal(_) => {
                let size = self.size(&fold.init);
                self.set_size(expr, size);
            }
            Kind::List(_) | Kind::Map(_) => {
                self.set_size(expr, Some(count));
                if let Some(entries) = self.entries_of(&fold.step) {
                    self.entries.insert(expr.id, entries);
                }
            }
            _ => {}
        }
        sum
    }

    fn bind(&mut self, expr: &Expr, fold: &Fold) -> Span {
        let mut sum = self.cost(&fold.range).add(self.cost(&fold.init));
        self.push_local(&fold.accu, &fold.init);
        sum = sum.add(self.cost(&fold.result));
        self.locals.pop();
        self.copy_sizes(expr, &fold.result);
        sum
    }

    fn copy_sizes(&mut self, to: &Expr, from: &Expr) {
        let size = self.size(from);
        self.set_size(to, size);
        if let Some(entries) = self.entries_of(from) {
            self.entries.insert(to.id, entries);
        }
    }

    fn set_size(&mut self, expr: &Expr, size: Option<Span>) {
        if let Some(size) = size {
            self.sizes.insert(expr.id, size);
        }
    }

    fn entries_of(&self, expr: &Expr) -> Option<Entries> {
        if let Some(entries) = self.entries.get(&expr.id) {
            return Some(*entries);
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.entries),
            _ => None,
        }
    }

    fn size_or_unknown(&mut self, expr: &Expr) -> Span {
        self.size(expr).unwrap_or(Span::UNKNOWN)
    }

    fn size(&mut self, expr: &Expr) -> Option<Span> {
        if let Some(size) = self.sizes.get(&expr.id) {
            return Some(*size);
        }
        if let Some(size) = written_size(expr) {
            return Some(Span::exactly(size));
        }
        if let Some(size) = self.declared_size(&self.path(expr).steps()) {
            self.sizes.insert(expr.id, size);
            return Some(size);
        }
        if self.ty(expr).is_scalar() {
            return Some(Span::exactly(1));
        }
        match &expr.kind {
            Kind::Ident(name) => self.local(name).and_then(|local| local.size),
            _ => None,
        }
    }

    /// Returns the maximum size of the value at a path. Any other name, such as a type, is treated as `self`. Map keys
    /// are assumed to be empty, as in v1.34, because a schema does not bound them.
    fn declared_size(&self, path: &[String]) -> Option<Span> {
        let (first, rest) = path.split_first()?;
        let mut at: &Declared = self.variables.get(first).or_else(|| self.variables.get("self"))?;
        for step in rest {
            at = match step.as_str() {
                ITEMS | VALUES => at.element.as_deref()?,
                KEYS if matches!(at.ty, Type::Map(..)) => return Some(Span::NOTHING),
                field => at.field(field)?,
            };
        }
        Some(Span { min: 0, max: at.max_elements })
    }

    /// Returns the type and the maximum size of a list's elements. `None` if there are no elements.
    fn element(&self, list: &Expr) -> Option<(Type, Span)> {
        let item = match self.ty(list) {
            Type::List(item) | Type::Optional(item) | Type::Map(item, _) => (**item).clone(),
            _ => return None,
        };
        let mut steps = self.path(list).steps();
        let size = match steps.is_empty() {
            true => None,
            false => {
                steps.push(ITEMS.to_owned());
                self.declared_size(&steps)
            }
        };
        Some((item, size.unwrap_or(Span::UNKNOWN)))
    }

    fn call(&mut self, expr: &Expr, target: Option<&Expr>, function: &str, args: &[Expr]) -> Span {
        if let ("dyn", [arg]) = (function, args) {
            let cost = self.cost(arg).add(Span::exactly(1));
            self.copy_sizes(expr, arg);
            return cost;
        }
        let costs: Vec<Span> = args.iter().map(|arg| self.cost(arg)).collect();
        let sum = target.map_or(Span::NOTHING, |target| self.cost(target));
        let all: Vec<&Expr> = target.into_iter().chain(args).collect();
        let fitting = self.checked.overloads.get(&expr.id).cloned().unwrap_or_default();
        let mut own = Span { min: u64::MAX, max: 0 };
        let mut size: Option<Span> = None;
        for index in fitting.iter().copied().chain(fitting.is_empty().then_some(usize::MAX)) {
            let params = overloads(function).get(index).map_or(&[][..], |overload| &overload.params);
            let (cost, result) = self.call_cost(expr, function, params, &all, &costs);
            own = own.union(cost);
            size = match (size, result) {
                (Some(size), Some(result)) => Some(size.union(result)),
                (size, result) => size.or(result),
            };
            let step = match params.first() {
                Some(Type::List(_)) if function == "_[_]" => Some(ITEMS),
                Some(Type::Map(..)) if function == "_[_]" => Some(VALUES),
                _ => None,
            };
            if let (Some(step), Some(container)) = (step, all.first()) {
                size = self.entries_of(container).map(|entries| entries.value);
                let path = self.path(container).then(step);
                self.paths.insert(expr.id, path);
            }
            size = size.or_else(|| self.size(expr));
        }
        self.set_size(expr, size);
        sum.add(own)
    }

    /// Returns the cost of comparing two values of a library type. `None` for other types.
    fn compared_opaques(&self, all: &[&Expr]) -> Option<Span> {
        let [left, right] = all else { return None };
        let Type::Opaque(name) = self.ty(left) else { return None };
        if self.ty(left) != self.ty(right) {
            return None;
        }
        // The name of a format has at most 64 characters.
        let most = match &**name {
            "kubernetes.NamedFormat" => 64,
            "kubernetes.URL" => self.sizes.get(&right.id).map_or(1, |size| size.max),
            _ => return Some(Span::exactly(1)),
        };
        Some(Span { min: 1, max: most }.scaled(LETTER))
    }

    /// Returns the cost of an overload, including its arguments, and the size of its result if known.
    fn call_cost(
        &mut self,
        expr: &Expr,
        function: &str,
        params: &[Type],
        all: &[&Expr],
        costs: &[Span],
    ) -> (Span, Option<Span>) {
        let args = costs.iter().fold(Span::NOTHING, |sum, cost| sum.add(*cost));
        let opaque = self.compared_opaques(all);
        let mut size_of = |at: usize| all.get(at).map_or(Span::UNKNOWN, |arg| self.size_or_unknown(arg));
        let is_text = |at: usize| matches!(params.get(at), Some(Type::String | Type::Bytes));
        match function {
            "_==_" if opaque.is_some() => {
                return (opaque.unwrap_or(Span::NOTHING).add(args), None);
            }
            "_&&_" | "_||_" => {
                let (left, right) = (costs[0], costs[1]);
                return (Span { min: left.min, max: left.add(right).max }, None);
            }
            "_?_:_" => {
                let size = size_of(1).union(size_of(2));
                let entries = self.entries_of(all[1]).zip(self.entries_of(all[2]));
                if let Some((a, b)) = entries {
                    let joined = Entries {
                        key: a.key.union(b.key),
                        value: a.value.union(b.value),
                        is_list: a.is_list,
                    };
                    self.entries.insert(expr.id, joined);
                }
                return (costs[0].add(costs[1].union(costs[2])), Some(size));
            }
            "_+_" if is_text(0) || matches!(params.first(), Some(Type::List(_))) => {
                let size = size_of(0).add(size_of(1));
                if let Some((a, b)) = self.entries_of(all[0]).zip(self.entries_of(all[1])) {
                    let joined = Entries {
                        key: a.key.union(b.key),
                        value: a.value.union(b.value),
                        is_list: a.is_list,
                    };
                    self.entries.insert(expr.id, joined);
                }
                let own = if is_text(0) { size.scaled(LETTER) } else { Span::exactly(1) };
                return (own.add(args), Some(size));
            }
            _ => {}
        }
        let (own, size) = match function {
            "check" => (Span::exactly(350_000), None),
            "fieldSelector" | "labelSelector" => {
                let selector = size_of(1);
                (Span::exactly(10).add(selector.scaled(LETTER)).add(selector.scaled(0.5).scaled(50.0)), None)
            }
            "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => {
                let size = size_of(0);
                match self.element(all[0]) {
                    Some((Type::String | Type::Bytes, letters)) => {
                        (size.times(Span::exactly(1).add(letters.scaled(LETTER))), None)
                    }
                    Some(_) => (size, None),
                    None => (size.scaled(LETTER), None),
                }
            }
            "url" | "lowerAscii" | "upperAscii" | "substring" | "trim" | "jsonpatch.escapeKey" => {
                let size = size_of(0);
                (size.scaled(LETTER), Some(size))
            }
            "replace" => {
                let (size, old, new) = (size_of(0), size_of(1), size_of(2));
                (size.scaled(2.0 * LETTER), Some(replaced(size, old, new)))
            }
            "split" => {
                let size = size_of(0);
                let most = match all.get(2).map(|arg| &arg.kind) {
                    Some(Kind::Literal(Literal::Int(most))) => *most as u64,
                    _ => size.max,
                };
                (size.scaled(2.0 * LETTER), Some(Span { min: 0, max: most }))
            }
            "join" => {
                let (count, separator) = (size_of(0), if all.len() > 1 { size_of(1) } else { Span::NOTHING });
                let letters = self.element(all[0]).map_or(Span::NOTHING, |(_, letters)| letters);
                let between = Span { min: count.min.saturating_sub(1), max: count.max.saturating_sub(1) };
                let size = count.times(letters).add(separator.times(between));
                (size.scaled(LETTER), Some(size))
            }
            "find" | "findAll" => {
                let size = size_of(0);
                let cost = matching(size, size_of(1));
                (cost, Some(Span { min: 0, max: size.max }))
            }
            "matches" => (matching(size_of(0), size_of(1)), None),
            "contains" => (size_of(0).scaled(LETTER).times(size_of(1).scaled(LETTER)), None),
            "cidr" | "isIP" | "isCIDR" | "quantity" | "isQuantity" | "semver" | "isSemver" => {
                (size_of(0).scaled(LETTER), None)
            }
            "ip" if is_text(0) => (size_of(0).scaled(LETTER), None),
            "ip.isCanonical" => (size_of(0).scaled(2.0 * LETTER), None),
            "containsIP" | "containsCIDR" => {
                let address = Span { min: 4, max: 16 };
                let mut cost = address.add(address).scaled(LETTER);
                if function == "containsCIDR" {
                    cost = cost.add(address.scaled(LETTER)).add(Span::exactly(1));
                }
                (if is_text(1) { cost.add(size_of(1).scaled(LETTER)) } else { cost }, None)
            }
            "validate" => (size_of(1).scaled(LETTER).scaled(128.0 * PATTERN_LETTER), None),
            "format" | GRAPH_FORMAT => (size_of(0).scaled(LETTER), None),
            "bytes" if is_text(0) => {
                let size = size_of(0);
                (size.scaled(LETTER), Some(Span { min: size.min, max: size.max.wrapping_mul(4) }))
            }
            "string" if matches!(params.first(), Some(Type::Bytes)) => {
                let size = size_of(0);
                (size.scaled(LETTER), Some(Span { min: size.min / 4, max: size.max }))
            }
            "strings.quote" => {
                let size = size_of(0);
                // v1.34 wraps around if the size is unknown.
                let most = size.max.wrapping_mul(2).wrapping_add(2);
                (size.scaled(LETTER), Some(Span { min: size.min.wrapping_add(2), max: most }))
            }
            "startsWith" | "endsWith" => (size_of(1).scaled(LETTER), None),
            "@in" if matches!(params.get(1), Some(Type::List(_))) => (size_of(1), None),
            "sets.contains" | "sets.intersects" => (size_of(0).times(size_of(1)).add(Span::exactly(1)), None),
            "sets.equivalent" => (size_of(0).times(size_of(1)).scaled(2.0).add(Span::exactly(1)), None),
            "slice" => {
                let (from, to) = (literal(all.get(1), 0), literal(all.get(2), size_of(0).max));
                made_list(1.0, Span::exactly(to.wrapping_sub(from)))
            }
            "lists.range" => made_list(1.0, Span::exactly(literal(all.first(), u64::MAX))),
            "reverse" => made_list(1.0, size_of(0)),
            "flatten" => {
                let depth = if all.len() > 1 { literal(all.get(1), u64::MAX) } else { 1 };
                made_list(depth as f64, size_of(0))
            }
            "distinct" => made_list(2.0, size_of(0).times(size_of(0))),
            "sort" => made_list(sorting(params.first()), size_of(0).times(size_of(0))),
            "@sortByAssociatedKeys" => {
                let size = size_of(1).times(size_of(1));
                made_list(sorting(all.get(1).map(|keys| self.ty(keys))), size)
            }
            "_==_" | "_!=_" => (compared(size_of(0), size_of(1)), None),
            "_<_" | "_<=_" | "_>_" | "_>=_" if is_text(0) => (compared(size_of(0), size_of(1)), None),
            _ => (Span::exactly(1), None),
        };
        (own.add(args), size)
    }
}

/// Returns the cost of a call that creates a list of this size, and the size.
fn made_list(factor: f64, size: Span) -> (Span, Option<Span>) {
    (size.scaled(factor).add(Span::exactly(1 + LIST_COST)), Some(size))
}

/// Returns the cost of comparing two items when sorting a list of this type.
fn sorting(list: Option<&Type>) -> f64 {
    match list {
        Some(Type::List(item)) if matches!(**item, Type::String | Type::Bytes | Type::Dyn) => 2.0 + LETTER,
        _ => 2.0,
    }
}

/// Returns a literal number, at least 0, or the default for other expressions.
fn literal(expr: Option<&&Expr>, otherwise: u64) -> u64 {
    match expr.map(|expr| &expr.kind) {
        Some(Kind::Literal(Literal::Int(number))) => u64::try_from(*number).unwrap_or(0),
        _ => otherwise,
    }
}

fn is_bind(fold: &Fold) -> bool {
    matches!(&fold.range.kind, Kind::List(elements) if elements.is_empty())
        && matches!(fold.condition.kind, Kind::Literal(Literal::Bool(false)))
}

fn compared(left: Span, right: Span) -> Span {
    let max = left.max.min(right.max);
    Span { min: u64::from(max > 0), max }.scaled(LETTER)
}

fn matching(text: Span, pattern: Span) -> Span {
    text.add(Span::exactly(1)).scaled(LETTER).times(pattern.scaled(PATTERN_LETTER))
}

/// Returns the possible length of a string after a replacement.
fn replaced(text: Span, old: Span, new: Span) -> Span {
    let (mut count, mut kept) = (Span::NOTHING, Span::NOTHING);
    if old.min == 0 {
        count.max = text.max.saturating_add(1);
        kept.max = text.max;
    } else if new.max <= old.min {
        kept.max = text.max;
    } else {
        count.max = (text.max as f64 / old.min as f64).ceil() as u64;
    }
    if old.max == 0 {
        count.min = text.min.saturating_add(1);
        kept.min = text.min;
    } else if old.max <= new.min {
        kept.min = text.min;
    } else {
        count.min = (text.min as f64 / old.max as f64).ceil() as u64;
    }
    count.times(new).add(kept)
}

/// Returns the size of a literal.
fn written_size(expr: &Expr) -> Option<u64> {
    let size = match &expr.kind {
        Kind::Literal(Literal::String(text)) => text.chars().count(),
        Kind::Literal(Literal::Bytes(bytes)) => bytes.len(),
        Kind::Literal(_) => 1,
        Kind::List(elements) => elements.len(),
        Kind::Map(entries) => entries.len(),
        _ => return None,
    };
    Some(size as u64)
}
