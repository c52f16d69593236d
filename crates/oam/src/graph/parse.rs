//! A checked ResourceGraphDefinition, with its resources in apply order.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::expression::{Expression, Template, alone};
use super::schema;

/// The maximum number of items and dimensions of a collection.
pub(super) const MAX_ITEMS: usize = 1_000;
const MAX_DIMENSIONS: usize = 10;
/// The maximum number of resources of a graph. Sorting them takes quadratic time.
const MAX_RESOURCES: usize = 1_000;

/// A checked definition.
#[derive(Debug)]
pub(super) struct Graph {
    pub(super) name: String,
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespaced: bool,
    /// In apply order.
    pub(super) resources: Vec<Resource>,
    pub(super) status: Template,
    /// The schema of the instances' spec.
    pub(super) spec_schema: Value,
    pub(super) columns: Value,
}

#[derive(Debug)]
pub(super) struct Resource {
    pub(super) id: String,
    /// Its path in the definition.
    pub(super) path: String,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) template: Template,
    /// Whether the object is only read.
    pub(super) external: bool,
    /// Whether the objects to read are selected by labels.
    pub(super) selects: bool,
    pub(super) ready_when: Vec<Expression>,
    pub(super) include_when: Vec<Expression>,
    /// Names and lists, the outermost first.
    pub(super) for_each: Vec<(String, Expression)>,
    /// The referenced resources.
    pub(super) depends_on: BTreeSet<String>,
}

impl Graph {
    /// Checks a definition. The error names the field.
    pub(super) fn parse(object: &Value) -> Result<Self, String> {
        let (spec, name) = (&object["spec"], object["metadata"]["name"].as_str().unwrap_or_default());
        let given = &spec["schema"];
        let text = |field: &str| given[field].as_str().unwrap_or_default().to_owned();
        for field in ["apiVersion", "kind"] {
            if text(field).is_empty() {
                return Err(format!("spec.schema.{field} is missing"));
            }
        }
        let ids = ids(&spec["resources"])?;
        if ids.len() > MAX_RESOURCES {
            return Err(format!("spec.resources: {} resources, expected at most {MAX_RESOURCES}", ids.len()));
        }
        let mut names = ids.clone();
        names.insert("schema".to_owned());
        let listed = spec["resources"].as_array().into_iter().flatten();
        let mut resources = Vec::new();
        for (index, resource) in listed.enumerate() {
            resources.push(Resource::parse(resource, &names, &ids, &format!("spec.resources[{index}]"))?);
        }
        let status = given.get("status").cloned().unwrap_or_else(|| json!({}));
        Ok(Self {
            name: name.to_owned(),
            group: Some(text("group"))
                .filter(|group| !group.is_empty())
                .unwrap_or_else(|| "kro.run".to_owned()),
            version: text("apiVersion"),
            kind: text("kind"),
            namespaced: given["scope"] != "Cluster",
            resources: ordered(resources)?,
            status: Template::compile(&status, &names, "spec.schema.status")?,
            spec_schema: schema::object(&given["spec"], &given["types"])?,
            columns: given["additionalPrinterColumns"].clone(),
        })
    }

    pub(super) fn plural(&self) -> String {
        plural(&self.kind)
    }
}

/// Returns the kind in a definition's `spec.schema`.
pub(super) fn instance_kind(schema: &Value) -> setpoint::Kind {
    let text = |field: &str| schema[field].as_str().unwrap_or_default();
    let group = Some(text("group")).filter(|group| !group.is_empty()).unwrap_or("kro.run");
    let kind = text("kind");
    setpoint::Kind::new(group, text("apiVersion"), kind, &plural(kind), schema["scope"] != "Cluster")
}

fn plural(kind: &str) -> String {
    let lower = kind.to_lowercase();
    let ends = |endings: &[&str]| endings.iter().any(|ending| lower.ends_with(ending));
    match () {
        () if ends(&["s", "x", "ch", "sh"]) => format!("{lower}es"),
        () if ends(&["y"]) && !ends(&["ay", "ey", "oy"]) => format!("{}ies", lower.trim_end_matches('y')),
        () => format!("{lower}s"),
    }
}

fn ids(resources: &Value) -> Result<BTreeSet<String>, String> {
    let mut ids = BTreeSet::new();
    for (index, resource) in resources.as_array().into_iter().flatten().enumerate() {
        let id = resource["id"].as_str().unwrap_or_default();
        let is_name = id.starts_with(|letter: char| letter.is_ascii_lowercase())
            && id.chars().all(|letter| letter.is_ascii_alphanumeric());
        if !is_name || matches!(id, "schema" | "each" | "instance" | "vars") {
            return Err(format!(
                "spec.resources[{index}].id is {id:?}, expected a lowerCamelCase name that is not reserved"
            ));
        }
        if !ids.insert(id.to_owned()) {
            return Err(format!("spec.resources[{index}].id: {id:?} is used twice"));
        }
    }
    Ok(ids)
}

impl Resource {
    fn parse(
        resource: &Value,
        names: &BTreeSet<String>,
        ids: &BTreeSet<String>,
        path: &str,
    ) -> Result<Self, String> {
        let id = resource["id"].as_str().unwrap_or_default().to_owned();
        let external = resource.get("externalRef").is_some();
        let source = if external { &resource["externalRef"] } else { &resource["template"] };
        let field = if external { "externalRef" } else { "template" };
        for part in ["apiVersion", "kind"] {
            if source[part].as_str().is_none_or(|text| text.is_empty() || text.contains("${")) {
                return Err(format!("{path}.{field}.{part}: expected a fixed text"));
            }
        }
        let selects = external && source["metadata"]["selector"].is_object();
        if external && source["metadata"]["name"].is_null() != selects {
            return Err(format!("{path}.externalRef.metadata: expected either a name or a selector"));
        }
        let for_each = dimensions(&resource["forEach"], names, path)?;
        if external && !for_each.is_empty() {
            return Err(format!("{path}.forEach: not with externalRef"));
        }
        let mut inner = names.clone();
        inner.extend(for_each.iter().map(|(name, _)| name.clone()));
        let template = Template::compile(source, &inner, &format!("{path}.{field}"))?;
        let own: BTreeSet<String> = [id.clone(), "each".to_owned(), "schema".to_owned()].into();
        let ready_when = conditions(&resource["readyWhen"], &own, &format!("{path}.readyWhen"))?;
        let include_when = conditions(&resource["includeWhen"], names, &format!("{path}.includeWhen"))?;
        let mut used = BTreeSet::new();
        template.uses(&mut used);
        used.extend(
            for_each
                .iter()
                .map(|(_, list)| list)
                .chain(&include_when)
                .flat_map(|one| one.uses.iter().cloned()),
        );
        let depends_on = used.into_iter().filter(|name| ids.contains(name)).collect();
        Ok(Self {
            id,
            path: path.to_owned(),
            api_version: source["apiVersion"].as_str().unwrap_or_default().to_owned(),
            kind: source["kind"].as_str().unwrap_or_default().to_owned(),
            template,
            external,
            selects,
            ready_when,
            include_when,
            for_each,
            depends_on,
        })
    }
}

impl Resource {
    /// Whether other resources see it as a list.
    pub(super) fn is_list(&self) -> bool {
        self.selects || !self.for_each.is_empty()
    }
}

fn conditions(list: &Value, names: &BTreeSet<String>, path: &str) -> Result<Vec<Expression>, String> {
    let one = |(index, text): (usize, &Value)| {
        let inside = text.as_str().and_then(alone);
        let inside = inside.ok_or_else(|| format!("{path}[{index}]: expected an expression ${{…}}"))?;
        Expression::compile(inside, names).map_err(|why| format!("{path}[{index}]: {why}"))
    };
    list.as_array().into_iter().flatten().enumerate().map(one).collect()
}

fn dimensions(
    list: &Value,
    names: &BTreeSet<String>,
    path: &str,
) -> Result<Vec<(String, Expression)>, String> {
    let mut dimensions = Vec::new();
    for (index, entry) in list.as_array().into_iter().flatten().enumerate() {
        let path = format!("{path}.forEach[{index}]");
        let mut entry = entry.as_object().into_iter().flatten();
        let (Some((name, text)), None) = (entry.next(), entry.next()) else {
            return Err(format!("{path}: expected one name with its list"));
        };
        if names.contains(name) || name == "vars" {
            return Err(format!("{path}: the name {name:?} is taken"));
        }
        let inside =
            text.as_str().and_then(alone).ok_or_else(|| format!("{path}: expected an expression ${{…}}"))?;
        dimensions.push((
            name.clone(),
            Expression::compile(inside, names).map_err(|why| format!("{path}: {why}"))?,
        ));
    }
    match dimensions.len() > MAX_DIMENSIONS {
        true => Err(format!("{path}.forEach: more than {MAX_DIMENSIONS} dimensions")),
        false => Ok(dimensions),
    }
}

/// Sorts resources so that each comes after the ones it refers to, and otherwise keeps their order.
fn ordered(resources: Vec<Resource>) -> Result<Vec<Resource>, String> {
    let (mut sorted, mut left): (Vec<Resource>, Vec<Resource>) = (Vec::new(), resources);
    while !left.is_empty() {
        let done: BTreeMap<&str, ()> = sorted.iter().map(|resource| (resource.id.as_str(), ())).collect();
        let free = |resource: &Resource| resource.depends_on.iter().all(|id| done.contains_key(id.as_str()));
        let Some(index) = left.iter().position(free) else {
            let names: Vec<&str> = left.iter().map(|resource| resource.id.as_str()).collect();
            return Err(format!("spec.resources: {} refer to each other", names.join(", ")));
        };
        sorted.push(left.remove(index));
    }
    Ok(sorted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(resources: Value) -> Result<Graph, String> {
        Graph::parse(&json!({"metadata": {"name": "g"}, "spec": {
            "schema": {"apiVersion": "v1alpha1", "kind": "Gateway", "spec": {"n": "integer"}}, "resources": resources}}))
    }

    fn resource(id: &str, refers: &str) -> Value {
        json!({"id": id, "template": {"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": refers}}})
    }

    #[test]
    fn references_decide_the_order() {
        let graph =
            graph(json!([resource("door", "${desk.a}"), resource("desk", "${schema.spec.n}")])).unwrap();
        let ids: Vec<&str> = graph.resources.iter().map(|resource| resource.id.as_str()).collect();
        assert_eq!((ids, graph.plural()), (vec!["desk", "door"], "gateways".to_owned()));
    }

    #[test]
    fn cycles_and_bad_names_are_refused() {
        let error = graph(json!([resource("a", "${b.x}"), resource("b", "${a.x}")])).unwrap_err();
        assert!(error.contains("a, b refer to each other"), "{error}");
        assert!(graph(json!([resource("A", "x")])).unwrap_err().contains("resources[0].id"));
        assert!(graph(json!([resource("a", "x"), resource("a", "x")])).unwrap_err().contains("twice"));
        assert!(
            graph(json!([resource("a", "${c.x}")])).unwrap_err().contains("resources[0].template.data.x")
        );
    }
}
