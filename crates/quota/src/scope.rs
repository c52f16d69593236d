//! Which objects a quota covers.

use serde::{Deserialize, Serialize};

/// `spec.scopes` and `spec.scopeSelector` of a quota. All must match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Scopes {
    scopes: Vec<String>,
    scope_selector: Option<ScopeSelector>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ScopeSelector {
    match_expressions: Vec<Scope>,
}

/// One requirement.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scope {
    pub scope_name: String,
    pub operator: Operator,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

impl Scopes {
    /// Lists all requirements. A plain scope requires existence.
    pub fn all(&self) -> impl Iterator<Item = Scope> {
        let named = self.scopes.iter().map(|name| Scope {
            scope_name: name.clone(),
            operator: Operator::Exists,
            values: Vec::new(),
        });
        named
            .chain(self.scope_selector.iter().flat_map(|selector| selector.match_expressions.iter().cloned()))
    }
}

impl Scope {
    /// Whether an object's value for the scope meets the requirement.
    pub(crate) fn holds(&self, value: Option<&str>) -> bool {
        let listed = value.is_some_and(|value| self.values.iter().any(|wanted| wanted == value));
        match self.operator {
            Operator::In => listed,
            Operator::NotIn => !listed,
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    }
}
