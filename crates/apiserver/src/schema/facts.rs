//! Parses `facts.txt`, whose header describes its format.

use std::collections::BTreeMap;

use super::{Field, List, ListKind, Map, PatchRule, Scalar, Shape, Struct, Table, Type, TypeId, zero};

const FACTS: &str = include_str!("facts.txt");

/// Types that the table abbreviates, with their names in OpenAPI.
const WELL_KNOWN: [(&str, Scalar); 10] = [
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", Scalar::Time),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", Scalar::MicroTime),
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", Scalar::Quantity),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", Scalar::IntOrString),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", Scalar::Raw),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", Scalar::Fields),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", Scalar::Any),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", Scalar::Any),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", Scalar::Any),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", Scalar::Any),
];

pub(super) fn built_in() -> Table {
    let mut reader = Reader::default();
    reader.name_all(FACTS);
    reader.read_all(FACTS);
    zero::mark_always_written(&mut reader.table);
    reader.table
}

#[derive(Default)]
struct Reader {
    table: Table,
    /// Unnamed types by their notation, so that each is stored once.
    written: BTreeMap<String, TypeId>,
}

impl Reader {
    /// Numbers all types first, since types refer to each other in any order.
    fn name_all(&mut self, facts: &str) {
        for name in type_lines(facts).filter_map(|line| line.split(' ').next()) {
            let name = full_name(name);
            let id = self.table.add(struct_of(&name, Vec::new(), false, Vec::new()));
            self.table.by_name.insert(name.into(), id);
        }
        for (name, scalar) in WELL_KNOWN {
            let id = self.table.add(Type { alias: None, shape: Shape::Scalar(scalar) });
            self.table.by_name.insert(name.into(), id);
        }
    }

    fn read_all(&mut self, facts: &str) {
        let mut lines = facts.lines().filter(|line| !line.starts_with('#')).peekable();
        while let Some(header) = lines.next() {
            let mut fields = Vec::new();
            while let Some(line) = lines.next_if(|line| line.starts_with(' ')) {
                fields.push(self.field(line.trim_start()));
            }
            self.define(header, fields);
        }
    }

    fn define(&mut self, header: &str, fields: Vec<Field>) {
        let mut words = header.split(' ');
        let name = full_name(words.next().unwrap_or_default());
        let (mut atomic, mut kinds) = (false, Vec::<Box<str>>::new());
        for word in words {
            match word.split_once('=') {
                Some(("map", kind)) => atomic = kind == "atomic",
                Some(("gvk", list)) => kinds = list.split(',').map(Box::from).collect(),
                _ => {}
            }
        }
        let id = self.table.by_name[name.as_str()];
        for kind in &kinds {
            self.table.by_kind.insert(kind.clone(), id);
        }
        self.table.types[id.0 as usize] = struct_of(&name, fields, atomic, kinds);
    }

    fn field(&mut self, line: &str) -> Field {
        let mut words = line.split(' ');
        let (name, expression) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let flags = words.next().unwrap_or_default();
        let mut facts = FieldFacts::default();
        for word in words {
            facts.read(word);
        }
        Field {
            name: name.into(),
            ty: self.typed(expression, &facts),
            required: flags.contains('!'),
            pointer: flags.contains('*'),
            omit_empty: flags.contains('?'),
            omit_zero: flags.contains('0'),
            keeps_empty: flags.contains('^'),
            granular: facts.granular,
            patch: facts.patch,
            values: facts.values,
            default: facts.default,
        }
    }

    /// Returns the type for `expression`, with the field's list or map type.
    fn typed(&mut self, expression: &str, facts: &FieldFacts) -> TypeId {
        if let Some(name) = expression.strip_prefix('&') {
            return self.table.by_name[full_name(name).as_str()];
        }
        let written = format!("{expression} {:?} {} {}", facts.list, facts.is_marked, facts.atomic_map);
        if let Some(id) = self.written.get(&written) {
            return *id;
        }
        let (alias, inner) = named(expression);
        let shape = self.shape(inner, facts);
        let id = self.table.add(Type { alias: alias.map(Box::from), shape });
        self.written.insert(written, id);
        id
    }

    fn shape(&mut self, expression: &str, facts: &FieldFacts) -> Shape {
        let plain = FieldFacts::default();
        if let Some(item) = expression.strip_prefix("[]") {
            let item = self.typed(item, &plain);
            return Shape::List(List { item, kind: facts.list.clone(), is_marked: facts.is_marked });
        }
        match expression.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            Some((key, value)) => {
                let value = self.typed(value, &plain);
                Shape::Map(Map { key: key.into(), value, atomic: facts.atomic_map })
            }
            None => Shape::Scalar(scalar(expression)),
        }
    }
}

/// A field's facts besides its type.
struct FieldFacts {
    list: ListKind,
    is_marked: bool,
    atomic_map: bool,
    granular: bool,
    patch: PatchRule,
    values: Box<[Box<str>]>,
    default: Option<serde_json::Value>,
}

impl Default for FieldFacts {
    fn default() -> Self {
        Self {
            list: ListKind::Atomic,
            is_marked: false,
            atomic_map: false,
            granular: false,
            patch: PatchRule::default(),
            values: Box::default(),
            default: None,
        }
    }
}

impl FieldFacts {
    fn read(&mut self, word: &str) {
        match word.split_once('=') {
            Some(("patch", strategies)) => {
                let says = |strategy| strategies.split(',').any(|one| one == strategy);
                self.patch.merge = says("merge");
                self.patch.replace = says("replace");
                self.patch.retain_keys = says("retainKeys");
            }
            Some(("key", key)) => self.patch.key = Some(key.into()),
            Some(("list", kind)) => (self.list, self.is_marked) = (list_kind(kind), true),
            Some(("map", kind)) => (self.atomic_map, self.granular) = (kind == "atomic", kind == "granular"),
            Some(("enum", values)) => self.values = values.split('|').map(Box::from).collect(),
            Some(("items", values)) => {
                self.values = values.split('|').map(|v| v.replace('_', " ").into()).collect()
            }
            Some(("default", json)) => self.default = serde_json::from_str(json).ok(),
            _ => {}
        }
    }
}

fn list_kind(written: &str) -> ListKind {
    match written.split_once(':') {
        Some(("map", keys)) => ListKind::Map(keys.split(',').map(Box::from).collect()),
        _ if written == "set" => ListKind::Set,
        _ => ListKind::Atomic,
    }
}

fn scalar(word: &str) -> Scalar {
    match word {
        "string" => Scalar::String,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "float64" => Scalar::Float,
        "bytes" => Scalar::Bytes,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "quantity" => Scalar::Quantity,
        "intstr" => Scalar::IntOrString,
        "raw" => Scalar::Raw,
        "fields" => Scalar::Fields,
        _ => Scalar::Any,
    }
}

/// Splits `v1.PullPolicy=string`, a named type, and `[]v1.Capability=string`, a list of one.
fn named(expression: &str) -> (Option<&str>, &str) {
    match expression.split_once('=') {
        Some((name, inner)) if !name.contains(['[', ']']) => (Some(name), inner),
        _ => (None, expression),
    }
}

/// Expands a type name that the tables abbreviate.
pub(super) fn full_name(short: &str) -> String {
    match short.strip_prefix('~') {
        Some(rest) => format!("io.k8s.{rest}"),
        None => format!("io.k8s.api.{short}"),
    }
}

fn type_lines(facts: &str) -> impl Iterator<Item = &str> {
    facts.lines().filter(|line| !line.starts_with(['#', ' ']))
}

/// A struct of fields in encoding order.
fn struct_of(name: &str, fields: Vec<Field>, atomic: bool, kinds: Vec<Box<str>>) -> Type {
    let mut ranked: Vec<(u16, Field)> = (0..).zip(fields).collect();
    ranked.sort_by(|(_, a), (_, b)| a.name.cmp(&b.name));
    let (ranks, fields): (Vec<u16>, Vec<Field>) = ranked.into_iter().unzip();
    let shape = Shape::Struct(Struct {
        name: name.into(),
        beginnings: fields.iter().map(|field| super::beginning(&field.name)).collect(),
        fields: fields.into(),
        atomic,
        kinds: kinds.into(),
        open: false,
        ranks: ranks.into(),
        always: Box::default(),
    });
    Type { alias: None, shape }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::Schema;

    #[test]
    fn every_type_is_loaded_with_sorted_fields() {
        let table = built_in();
        assert_eq!(table.by_name.len(), 630);
        for (name, fields) in table.structs() {
            assert!(fields.fields.is_sorted_by(|a, b| a.name < b.name), "{name}");
        }
    }

    #[test]
    fn fields_carry_their_facts() {
        let pod = Schema::built_in_kind("", "v1", "Pod").unwrap();
        let spec = pod.field("spec").unwrap();
        let containers = spec.root_struct().unwrap().field("containers").unwrap();
        assert!(containers.required && containers.patch.merge && !containers.pointer);
        assert_eq!(containers.patch.key.as_deref(), Some("name"));
        let Shape::List(list) = spec.table().shape(containers.ty) else { panic!("a list") };
        assert_eq!(list.kind, ListKind::Map(Box::new(["name".into()])));
        let policy = spec.root_struct().unwrap().field("dnsPolicy").unwrap();
        assert_eq!(policy.values.len(), 4);
        assert!(spec.root_struct().unwrap().field("volumes").unwrap().patch.retain_keys);
    }

    #[test]
    fn list_keys_have_their_defaults() {
        let port = Schema::built_in("io.k8s.api.core.v1.ServicePort").unwrap();
        assert_eq!(port.root_struct().unwrap().field("protocol").unwrap().default, Some("TCP".into()));
    }
}
