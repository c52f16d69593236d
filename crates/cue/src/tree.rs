//! Evaluated values with their comments, which patches need in addition to JSON.

use serde_json::Value as Json;

/// An attribute `@name(body)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attribute {
    /// The name.
    pub name: String,
    /// The text in parentheses.
    pub body: String,
}

/// A concrete value with comments and attributes.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// The value.
    pub value: TreeValue,
    /// The comment lines of the field's declarations, without slashes and surrounding blanks.
    pub comments: Vec<String>,
    /// The attributes of the field's declarations.
    pub attributes: Vec<Attribute>,
}

/// The value of a [`Tree`].
#[derive(Clone, Debug, PartialEq)]
pub enum TreeValue {
    /// Null, a bool, a number or a string. Byte sequences are base64.
    Scalar(Json),
    /// A list.
    List {
        /// The elements.
        items: Vec<Tree>,
        /// Whether more elements may follow: `[…, ...]`.
        open: bool,
        /// The type of further elements: `[...{x: 1}]`. Contains only its concrete fields.
        rest: Option<Box<Tree>>,
    },
    /// A struct, with its regular fields in source order.
    Struct(Vec<(String, Tree)>),
}

impl Tree {
    /// Returns the value as JSON.
    pub fn to_json(&self) -> Json {
        match &self.value {
            TreeValue::Scalar(json) => json.clone(),
            TreeValue::List { items, .. } => Json::Array(items.iter().map(Self::to_json).collect()),
            TreeValue::Struct(fields) => {
                Json::Object(fields.iter().map(|(name, field)| (name.clone(), field.to_json())).collect())
            }
        }
    }

    /// Returns a field of a struct.
    pub fn field(&self, name: &str) -> Option<&Self> {
        match &self.value {
            TreeValue::Struct(fields) => {
                fields.iter().find(|(known, _)| known == name).map(|(_, field)| field)
            }
            _ => None,
        }
    }

    /// Returns the value of a marker such as `patchKey` in the comment `// +patchKey=name`.
    ///
    /// ```
    /// use setpoint_cue::Instance;
    ///
    /// let instance = Instance::of("patch.cue", r#"
    ///     patch: spec: {
    ///         // +patchKey=name
    ///         // +patchStrategy=retainKeys
    ///         containers: [{name: "tail"}]
    ///     }
    /// "#)?;
    /// let patch = instance.lookup("patch")?.to_tree()?;
    /// let containers = patch.field("spec").and_then(|spec| spec.field("containers")).unwrap();
    /// assert_eq!(containers.marker("patchKey"), Some("name"));
    /// assert_eq!(containers.marker("patchStrategy"), Some("retainKeys"));
    /// # Ok::<(), setpoint_cue::Errors>(())
    /// ```
    pub fn marker(&self, name: &str) -> Option<&str> {
        marker(&self.comments, name)
    }
}

/// Finds `+name=value` or `+name` in comments.
pub(crate) fn marker<'a>(comments: &'a [String], name: &str) -> Option<&'a str> {
    comments.iter().find_map(|comment| {
        let rest = comment.trim().strip_prefix('+')?.strip_prefix(name)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value.trim()),
            None => rest.is_empty().then_some(""),
        }
    })
}
