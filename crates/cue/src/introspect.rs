//! Introspection: the schema of a value, for documenting and checking parameters.

use serde_json::Value as Json;

use crate::data::atom_to_json;
use crate::error::ErrorKind;
use crate::eval::Evaluator;
use crate::eval::env;
use crate::eval::node::{Conjunct, Mode, NodeId, Term, Ties, Value};
use crate::export;
use crate::syntax::ast::Marker;
use crate::tree::{Attribute, marker};
use crate::value::{Atom, BoundOp, Kind};

/// The maximum depth of schemas.
const MAX_DEPTH: usize = 12;
/// How often a recursive definition is expanded.
const MAX_RECURSION: usize = 1;

/// The schema of a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// The types.
    pub kind: Kind,
    /// The default, if it is concrete.
    pub default: Option<Json>,
    /// The possible values, if they are enumerated.
    pub options: Vec<Json>,
    /// The minimum, and whether it is exclusive.
    pub minimum: Option<(Json, bool)>,
    /// The maximum, and whether it is exclusive.
    pub maximum: Option<(Json, bool)>,
    /// Regular expressions that a string must match.
    pub patterns: Vec<String>,
    /// The fields of a struct.
    pub fields: Vec<Field>,
    /// The elements of a list: those of `[...T]`.
    pub items: Option<Box<Schema>>,
    /// The values of further fields: those of `[string]: T`.
    pub others: Option<Box<Schema>>,
    /// Whether a struct rejects undeclared fields.
    pub closed: bool,
    /// The alternatives, if they are not all single values or types.
    pub alternatives: Vec<Schema>,
    /// The comment lines.
    pub comments: Vec<String>,
    /// The attributes.
    pub attributes: Vec<Attribute>,
}

/// A field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name.
    pub name: String,
    /// Whether the field is required: it is not optional, has no default and is not fixed.
    pub required: bool,
    /// Its schema.
    pub schema: Schema,
}

impl Schema {
    fn of(kind: Kind) -> Self {
        Self {
            kind,
            default: None,
            options: Vec::new(),
            minimum: None,
            maximum: None,
            patterns: Vec::new(),
            fields: Vec::new(),
            items: None,
            others: None,
            closed: false,
            alternatives: Vec::new(),
            comments: Vec::new(),
            attributes: Vec::new(),
        }
    }

    /// Returns the value of a marker in the comments: `usage` for `// +usage=…`.
    pub fn marker(&self, name: &str) -> Option<&str> {
        marker(&self.comments, name)
    }

    /// Returns a field.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| field.name == name)
    }

    /// Describes the type in a few words, for a table: `string`, `"a" | "b"`, `[...int]`.
    pub fn summary(&self) -> String {
        if !self.options.is_empty() {
            let options: Vec<String> = self.options.iter().map(Json::to_string).collect();
            return options.join(" | ");
        }
        if !self.alternatives.is_empty() {
            let alternatives: Vec<String> = self.alternatives.iter().map(Self::summary).collect();
            return alternatives.join(" | ");
        }
        match (&self.items, &self.others) {
            (Some(items), _) if self.kind == Kind::LIST => format!("[...{}]", items.summary()),
            (_, Some(others)) if self.fields.is_empty() => format!("{{[string]: {}}}", others.summary()),
            _ if self.kind == Kind::STRUCT => "{…}".to_owned(),
            _ if self.kind == Kind::LIST => "[...]".to_owned(),
            _ => self.kind.to_string(),
        }
    }

    /// Returns the schema as an OpenAPI v3 schema.
    ///
    /// ```
    /// use setpoint_cue::Instance;
    ///
    /// let instance = Instance::of("p.cue", r#"
    ///     parameter: {
    ///         // +usage=Which image
    ///         image: string
    ///         port: *80 | int & >0
    ///     }
    /// "#)?;
    /// let schema = instance.lookup("parameter")?.schema()?.to_openapi();
    /// assert_eq!(schema["required"][0], "image");
    /// assert_eq!(schema["properties"]["image"]["description"], "Which image");
    /// assert_eq!(schema["properties"]["port"]["default"], 80);
    /// # Ok::<(), setpoint_cue::Errors>(())
    /// ```
    pub fn to_openapi(&self) -> Json {
        crate::openapi::schema(self)
    }
}

/// Returns the types that a value can have.
pub(crate) fn kind(evaluator: &mut Evaluator, id: NodeId) -> Kind {
    evaluator.evaluate(id);
    let shape = evaluator.shape(id);
    match &shape.value {
        Value::Bottom(_) => Kind::NONE,
        Value::Atom(atom) => atom.kind(),
        Value::Struct => Kind::STRUCT,
        Value::List => Kind::LIST,
        Value::Constraint => shape.kind,
        Value::Disjunction => {
            let alternatives = shape.alternatives.clone();
            alternatives.into_iter().fold(Kind::NONE, |all, (node, _)| all.or(kind(evaluator, node)))
        }
    }
}

/// Describes a value.
pub(crate) fn schema(evaluator: &mut Evaluator, id: NodeId) -> Schema {
    described(evaluator, id, Level::default())
}

/// The depth of the description.
#[derive(Clone, Copy, Default)]
struct Level {
    depth: usize,
    recursions: usize,
}

impl Level {
    fn down(self) -> Self {
        Self { depth: self.depth + 1, ..self }
    }
}

fn described(evaluator: &mut Evaluator, id: NodeId, level: Level) -> Schema {
    evaluator.evaluate(id);
    let recurs = matches!(&evaluator.shape(id).value, Value::Bottom(bottom) if bottom.kind == ErrorKind::StructuralCycle);
    let mut schema = if recurs && level.recursions < MAX_RECURSION {
        let copy = detached(evaluator, id);
        bare(evaluator, copy, Level { recursions: level.recursions + 1, ..level.down() })
    } else {
        bare(evaluator, id, level)
    };
    schema.comments = export::comments(evaluator, id);
    schema.attributes = export::attributes(evaluator, id);
    schema
}

/// Copies a node that would be infinite, so that its first level can be seen.
fn detached(evaluator: &mut Evaluator, id: NodeId) -> NodeId {
    let conjuncts = evaluator.node(id).conjuncts.clone();
    let copy = evaluator.term(Term::Items(std::rc::Rc::default()));
    let cut = |conjunct: Conjunct| Conjunct {
        ties: Ties { chain: None, cyclic: false, ..conjunct.ties },
        ..conjunct
    };
    evaluator.node_mut(copy).conjuncts = conjuncts.into_iter().map(cut).collect();
    evaluator.evaluate(copy);
    copy
}

fn bare(evaluator: &mut Evaluator, id: NodeId, level: Level) -> Schema {
    let mut schema = Schema::of(kind(evaluator, id));
    if level.depth > MAX_DEPTH || evaluator.stopped.is_some() {
        return schema;
    }
    match evaluator.shape(id).value.clone() {
        Value::Bottom(_) => {}
        Value::Atom(atom) => {
            schema.options = atom_to_json(&atom).into_iter().collect();
            schema.default = schema.options.first().cloned();
        }
        Value::Constraint => bounds(evaluator, id, &mut schema),
        Value::Struct => structure(evaluator, id, level, &mut schema),
        Value::List => {
            if let Some(rest) = rest(evaluator, id) {
                schema.items = Some(Box::new(described(evaluator, rest, level.down())));
            } else if let Some(element) = evaluator.shape(id).elements.first().copied() {
                schema.items = Some(Box::new(described(evaluator, element, level.down())));
            }
            schema.default =
                export::to_json(evaluator, id).ok().filter(|_| !evaluator.shape(id).is_open_list());
        }
        Value::Disjunction => return disjunction(evaluator, id, level, schema),
    }
    schema
}

fn bounds(evaluator: &Evaluator, id: NodeId, schema: &mut Schema) {
    for (bound, _) in &evaluator.shape(id).bounds {
        let Ok(value) = atom_to_json(&bound.value) else { continue };
        match (bound.op, &bound.value) {
            (BoundOp::Greater, _) => schema.minimum = Some((value, true)),
            (BoundOp::GreaterEqual, _) => schema.minimum = Some((value, false)),
            (BoundOp::Less, _) => schema.maximum = Some((value, true)),
            (BoundOp::LessEqual, _) => schema.maximum = Some((value, false)),
            (BoundOp::Match, Atom::Text(pattern)) => schema.patterns.push(pattern.to_string()),
            _ => {}
        }
    }
}

fn structure(evaluator: &mut Evaluator, id: NodeId, level: Level, schema: &mut Schema) {
    schema.closed = evaluator.is_closed(id);
    let arms = evaluator.shape(id).arms.iter().filter(|(label, _)| label.is_regular());
    let arms: Vec<_> = arms.map(|(label, arm)| (label.name.to_string(), arm.node)).collect();
    for (name, node) in arms {
        let field = described(evaluator, node, level.down());
        let required = match evaluator.node(node).marker {
            Marker::Optional => false,
            Marker::Required => true,
            Marker::None => !is_settled(&field),
        };
        schema.fields.push(Field { name, required, schema: field });
    }
    let rule = evaluator.shape(id).patterns.first().cloned();
    if let Some(rule) = rule {
        let node = evaluator.term(Term::Items(std::rc::Rc::default()));
        let env = env::value(&rule.env, node);
        let term = Term::Expr(rule.pattern.value.clone());
        evaluator.node_mut(node).conjuncts = vec![Conjunct { term, env, ties: Ties::default() }];
        schema.others = Some(Box::new(described(evaluator, node, level.down())));
    }
}

/// Returns whether a field needs no value from the user.
fn is_settled(schema: &Schema) -> bool {
    let is_struct = schema.kind == Kind::STRUCT && schema.alternatives.is_empty();
    schema.default.is_some() || (is_struct && schema.fields.iter().all(|field| !field.required))
}

/// Describes alternatives: single values as options, types as one type, anything else one by one.
fn disjunction(evaluator: &mut Evaluator, id: NodeId, level: Level, mut schema: Schema) -> Schema {
    let alternatives = evaluator.shape(id).alternatives.clone();
    if let [(only, _)] = alternatives.as_slice() {
        return bare(evaluator, *only, level);
    }
    if let Some(default) = evaluator.default(id) {
        schema.default = export::to_json(evaluator, default).ok();
    }
    let described: Vec<(Schema, Mode)> =
        alternatives.iter().map(|(node, mode)| (bare(evaluator, *node, level.down()), *mode)).collect();
    if described.iter().all(|(alternative, _)| alternative.options.len() == 1) {
        schema.options = described.into_iter().flat_map(|(alternative, _)| alternative.options).collect();
        return schema;
    }
    // `*1 | int` is an int with a default.
    let wide: Vec<&Schema> = described
        .iter()
        .map(|(alternative, _)| alternative)
        .filter(|a| a.options.is_empty() || a.options.len() > 1)
        .collect();
    let covered = |a: &Schema| wide.iter().any(|wide| wide.kind.contains(a.kind) && wide.fields.is_empty());
    if let [only] = wide.as_slice()
        && described.iter().all(|(a, _)| std::ptr::eq(*only, a) || covered(a))
    {
        let default = schema.default.take();
        return Schema { default, ..(*only).clone() };
    }
    let all_types =
        described.iter().all(|(a, _)| a.fields.is_empty() && a.items.is_none() && a.others.is_none());
    if !all_types || !described.iter().all(|(a, _)| a.options.is_empty()) {
        schema.alternatives = described.into_iter().map(|(alternative, _)| alternative).collect();
    }
    schema
}

/// Returns a node for the elements that may follow those of an open list.
pub(crate) fn rest(evaluator: &mut Evaluator, id: NodeId) -> Option<NodeId> {
    let tails = evaluator.shape(id).lists.iter().filter_map(|part| part.tail.clone().flatten());
    let tails: Vec<Conjunct> =
        tails.map(|tail| Conjunct { ties: evaluator.inherited(&tail.ties), ..tail }).collect();
    let (first, others) = tails.split_first()?;
    let node = evaluator.anonymous(first.clone());
    evaluator.node_mut(node).conjuncts.extend(others.iter().cloned());
    Some(node)
}
