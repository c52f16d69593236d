//! Packages of the host: definitions as CUE text, functions as Rust.
//!
//! An import that is not part of the standard library is looked up here. Host packages are data: a definition such as
//! `#Apply` is ordinary CUE, and the host acts on the evaluated value. Functions must be pure, so that evaluation stays
//! deterministic.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::Source;
use crate::ir;

/// A function that templates can call.
pub trait HostFunction: Send + Sync {
    /// Calls the function. An error is reported at the position of the call.
    fn call(&self, arguments: &[Json]) -> Result<Json, String>;
}

impl<F> HostFunction for F
where
    F: Fn(&[Json]) -> Result<Json, String> + Send + Sync,
{
    fn call(&self, arguments: &[Json]) -> Result<Json, String> {
        self(arguments)
    }
}

/// A package of the host.
///
/// ```
/// use setpoint_cue::{Instance, Package, Packages, Source};
///
/// let definitions = Source::parse("op.cue", r#"
///     #Wait: {#do: "wait", continue: bool}
/// "#)?;
/// let double = |arguments: &[serde_json::Value]| match arguments {
///     [number] => Ok((number.as_i64().unwrap_or(0) * 2).into()),
///     _ => Err("takes one number".to_owned()),
/// };
/// let packages = Packages::new()
///     .with("vela/op", Package::new().source(definitions).function("Double", double));
/// let template = Source::parse("template.cue", r#"
///     import "vela/op"
///     wait: op.#Wait & {continue: op.Double(2) == 4}
/// "#)?;
/// let instance = Instance::builder().source(&template).packages(packages).build()?;
/// assert_eq!(instance.lookup("wait.#do")?.to_json()?, "wait");
/// assert_eq!(instance.lookup("wait.continue")?.to_json()?, true);
/// # Ok::<(), setpoint_cue::Errors>(())
/// ```
#[derive(Clone, Default)]
pub struct Package {
    sources: Vec<Source>,
    functions: BTreeMap<String, Arc<dyn HostFunction>>,
}

impl fmt::Debug for Package {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let functions: Vec<&String> = self.functions.keys().collect();
        out.debug_struct("Package")
            .field("sources", &self.sources.len())
            .field("functions", &functions)
            .finish()
    }
}

impl Package {
    /// Creates an empty package.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds definitions.
    #[must_use]
    pub fn source(mut self, source: Source) -> Self {
        self.sources.push(source);
        self
    }

    /// Adds a function.
    #[must_use]
    pub fn function(mut self, name: &str, function: impl HostFunction + 'static) -> Self {
        self.functions.insert(name.to_owned(), Arc::new(function));
        self
    }

    pub(crate) fn literals(&self) -> Vec<Arc<ir::StructLit>> {
        self.sources.iter().map(|source| source.resolved().root.clone()).collect()
    }
}

/// The packages that templates can import, by path.
#[derive(Clone, Debug, Default)]
pub struct Packages(BTreeMap<String, Arc<Package>>);

impl Packages {
    /// Creates a registry without packages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a package.
    #[must_use]
    pub fn with(mut self, path: &str, package: Package) -> Self {
        self.0.insert(path.to_owned(), Arc::new(package));
        self
    }

    pub(crate) fn get(&self, path: &str) -> Option<Arc<Package>> {
        self.0.get(path).cloned()
    }

    pub(crate) fn function(&self, path: &str, name: &str) -> Option<Arc<dyn HostFunction>> {
        self.0.get(path)?.functions.get(name).cloned()
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = String> {
        self.0.keys().cloned()
    }
}
