//! A CRD's spec as v1.34 sees it: settings that all versions share are moved to the top level.

use serde_json::Value;

use crate::custom::props::Props;
use crate::json::Json;

pub(super) struct Spec<'v> {
    pub versions: Vec<Version<'v>>,
    /// The settings that all versions share.
    pub shared: Parts<'v>,
    has_versions: bool,
}

pub(super) struct Version<'v> {
    pub value: &'v Value,
    pub own: Parts<'v>,
}

/// A version's settings for its objects.
#[derive(Default)]
pub(super) struct Parts<'v> {
    pub schema: Option<&'v Value>,
    pub subresources: Option<&'v Value>,
    pub columns: &'v [Value],
    pub selectable: &'v [Value],
}

impl<'v> Spec<'v> {
    pub(super) fn of(spec: &'v Value) -> Self {
        let written = spec.list("versions");
        let mut shared = Parts::default();
        let all_alike = |field: &str| {
            written
                .first()
                .is_some_and(|first| written.iter().all(|version| version.at(field) == first.at(field)))
        };
        let alike = ["schema", "subresources", "additionalPrinterColumns", "selectableFields"].map(all_alike);
        let versions = written
            .iter()
            .map(|value| {
                let mut own = Parts::of(value);
                if alike[0] {
                    shared.schema = own.schema.take();
                }
                if alike[1] {
                    shared.subresources = own.subresources.take();
                }
                if alike[2] {
                    shared.columns = std::mem::take(&mut own.columns);
                }
                if alike[3] {
                    shared.selectable = std::mem::take(&mut own.selectable);
                }
                Version { value, own }
            })
            .collect();
        Self { versions, shared, has_versions: spec.at("versions").is_array() }
    }

    /// Formats the versions for messages.
    pub(super) fn shown_versions(&self) -> String {
        match self.has_versions {
            true => format!("[{}]", self.versions.iter().map(Version::shown).collect::<Vec<_>>().join(",")),
            false => "null".into(),
        }
    }

    pub(super) fn has_status(&self, version: &Version<'_>) -> bool {
        let subresources = version.own.subresources.or(self.shared.subresources);
        subresources.is_some_and(|subresources| subresources.has("status"))
    }

    /// Whether any schema has defaults.
    pub(super) fn has_defaults(&self) -> bool {
        let mut parts = self.versions.iter().map(|version| &version.own).chain([&self.shared]);
        parts.any(|parts| match parts.props() {
            Some(Ok(props)) => props.any(&mut |props| props.default.is_some()),
            _ => false,
        })
    }

    pub(super) fn has_any_status(&self) -> bool {
        self.versions.iter().any(|version| self.has_status(version))
    }
}

impl Version<'_> {
    /// Formats it with its fields in order.
    fn shown(&self) -> String {
        let (version, own) = (self.value, &self.own);
        let list = |items: &[Value]| match items {
            [] => Value::Null,
            items => items.to_vec().into(),
        };
        let fields = [
            ("Name", version.text("name").into()),
            ("Served", version.flag("served").into()),
            ("Storage", version.flag("storage").into()),
            ("Deprecated", version.flag("deprecated").into()),
            ("DeprecationWarning", version.at("deprecationWarning").clone()),
            ("Schema", own.schema.cloned().unwrap_or_default()),
            ("Subresources", own.subresources.cloned().unwrap_or_default()),
            ("AdditionalPrinterColumns", list(own.columns)),
            ("SelectableFields", list(own.selectable)),
        ];
        format!("{{{}}}", fields.map(|(name, value)| format!("{name:?}:{value}")).join(","))
    }
}

impl<'v> Parts<'v> {
    fn of(version: &'v Value) -> Self {
        let part = |field: &str| Some(version.at(field)).filter(|part| !part.is_null());
        Self {
            schema: part("schema"),
            subresources: part("subresources"),
            columns: version.list("additionalPrinterColumns"),
            selectable: version.list("selectableFields"),
        }
    }

    /// Parses the schema of objects.
    pub(super) fn props(&self) -> Option<Result<Props, String>> {
        let schema = self.schema?.at("openAPIV3Schema");
        (!schema.is_null()).then(|| Props::parse(schema))
    }
}
