//! Instances: sources and data that are evaluated together.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::data::Data;
use crate::error::{Error, ErrorKind, Errors, Position};
use crate::eval::Evaluator;
use crate::eval::node::{Conjunct, Term, Ties};
use crate::host::Packages;
use crate::input::Input;
use crate::limits::Limits;
use crate::path::{Path, Step};
use crate::resolve;
use crate::similar;
use crate::source::Source;
use crate::syntax::parser;
use crate::{builtins, ir};

use crate::api_value::Value;

/// Builds an instance.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    sources: Vec<Source>,
    data: Vec<Arc<Data>>,
    /// The top-level fields of the data.
    names: BTreeSet<String>,
    /// Names that may be used although nothing declares them.
    expected: BTreeSet<String>,
    limits: Limits,
    packages: Arc<Packages>,
    error: Option<Error>,
}

impl Builder {
    /// Adds a source. The top-level fields of all sources are unified and visible to each other.
    #[must_use]
    pub fn source(mut self, source: &Source) -> Self {
        self.sources.push(source.clone());
        self
    }

    /// Unifies the value at a path with data, without going through text.
    #[must_use]
    pub fn fill(self, path: &str, data: &Json) -> Self {
        let data = Data::from_json(data).map(Arc::new);
        self.filled(path, data)
    }

    /// Like [`fill`](Self::fill), but with data that other instances may share.
    #[must_use]
    pub fn input(self, path: &str, data: &Input) -> Self {
        self.filled(path, Ok(data.0.clone()))
    }

    fn filled(mut self, path: &str, data: Result<Arc<Data>, Error>) -> Self {
        match data.and_then(|data| placed(path, data)) {
            Ok((names, data)) => {
                self.names.extend(names);
                self.data.push(data);
            }
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
        self
    }

    /// Allows a name to be used although nothing declares it. It stays incomplete.
    #[must_use]
    pub fn expect(mut self, name: &str) -> Self {
        self.expected.insert(name.to_owned());
        self
    }

    /// Sets the limits of the evaluation.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the packages that can be imported in addition to the standard library.
    #[must_use]
    pub fn packages(mut self, packages: impl Into<Arc<Packages>>) -> Self {
        self.packages = packages.into();
        self
    }

    /// Builds the instance. Fails if a name or an import is unknown; nothing is evaluated yet.
    pub fn build(self) -> Result<Instance, Errors> {
        if let Some(error) = self.error {
            return Err(error.into());
        }
        let mut errors = Vec::new();
        self.check_names(&mut errors);
        self.check_imports(&mut errors);
        if let Some(errors) = Errors::new(errors) {
            return Err(errors);
        }
        let mut evaluator = Evaluator::new(self.limits, self.packages.clone());
        let literals = self.sources.iter().map(|source| Term::Literal(source.resolved().root.clone()));
        let data = self.data.iter().map(|data| Term::Data(data.clone()));
        let conjuncts = literals.chain(data).map(|term| Conjunct { term, env: None, ties: Ties::default() });
        let root = evaluator.root;
        evaluator.node_mut(root).conjuncts = conjuncts.collect();
        Ok(Instance { evaluator: RefCell::new(evaluator), limits: self.limits })
    }

    fn declared(&self) -> BTreeSet<String> {
        let mut names = self.names.clone();
        names.extend(self.expected.iter().cloned());
        for source in &self.sources {
            for decl in &source.resolved().root.decls {
                if let ir::Decl::Field(field) = decl {
                    names.insert(field.label.name.to_string());
                }
            }
        }
        names
    }

    fn check_names(&self, errors: &mut Vec<Error>) {
        let declared = self.declared();
        for source in &self.sources {
            for (name, position) in &source.resolved().free {
                if declared.contains(name) || errors.len() >= Errors::MAX {
                    continue;
                }
                let mut error =
                    Error::new(ErrorKind::Reference, format!("reference `{name}` not found")).at(position);
                if builtins::is_package(name) {
                    error = error.hint(format!("add: import \"{name}\""));
                } else if let Some(similar) = similar::closest(name, declared.iter().cloned()) {
                    error = error.hint(format!("did you mean `{similar}`?"));
                }
                errors.push(error);
            }
        }
    }

    fn check_imports(&self, errors: &mut Vec<Error>) {
        for (path, position) in self.sources.iter().flat_map(|source| &source.resolved().imports) {
            if builtins::is_package(path) || self.packages.get(path).is_some() || errors.len() >= Errors::MAX
            {
                continue;
            }
            let mut error =
                Error::new(ErrorKind::Reference, format!("package \"{path}\" is not known")).at(position);
            let known = builtins::package_paths().chain(self.packages.paths());
            if let Some(similar) = similar::closest(path, known) {
                error = error.hint(format!("did you mean \"{similar}\"?"));
            }
            errors.push(error);
        }
    }
}

/// Wraps data into structs along a path. Returns the names of the outermost fields as well.
fn placed(path: &str, mut data: Arc<Data>) -> Result<(Vec<String>, Arc<Data>), Error> {
    let path = Path::parse(path)?;
    for step in path.steps.iter().rev() {
        let Step::Label(label) = step else {
            return Err(Error::new(ErrorKind::Reference, "data is filled in at fields, not at indexes"));
        };
        if !label.is_regular() {
            let message = format!("data is filled in at regular fields, not at `{label}`");
            return Err(Error::new(ErrorKind::Reference, message));
        }
        data = Arc::new(Data::Struct(vec![(label.name.clone(), data)]));
    }
    let names = match &*data {
        Data::Struct(fields) => fields.iter().map(|(name, _)| name.to_string()).collect(),
        _ => Vec::new(),
    };
    Ok((names, data))
}

/// Sources and data, evaluated on demand.
///
/// ```
/// use serde_json::json;
/// use setpoint_cue::{Instance, Source};
///
/// let template = Source::parse("template.cue", r#"
///     parameter: {
///         // +usage=Number of pods
///         replicas: *1 | int & >0
///         image: string
///     }
///     output: {
///         kind: "Deployment"
///         metadata: name: context.name
///         spec: replicas: parameter.replicas
///         spec: template: spec: containers: [{name: context.name, image: parameter.image}]
///     }
/// "#)?;
/// let instance = Instance::builder()
///     .source(&template)
///     .fill("parameter", &json!({"image": "nginx"}))
///     .fill("context", &json!({"name": "web"}))
///     .build()?;
/// let output = instance.lookup("output")?.to_json()?;
/// assert_eq!(output["spec"]["replicas"], 1);
/// assert_eq!(output["spec"]["template"]["spec"]["containers"][0]["image"], "nginx");
/// # Ok::<(), setpoint_cue::Errors>(())
/// ```
#[derive(Debug)]
pub struct Instance {
    pub(crate) evaluator: RefCell<Evaluator>,
    limits: Limits,
}

impl Instance {
    /// Starts building an instance.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Evaluates a single source.
    pub fn of(name: &str, text: &str) -> Result<Self, Errors> {
        Self::builder().source(&Source::parse(name, text)?).build()
    }

    /// Returns the whole instance as a value.
    pub fn root(&self) -> Value<'_> {
        let root = self.evaluator.borrow().root;
        Value::new(self, root)
    }

    /// Returns the value at a path such as `output.spec.ports[0]."a b"`. `_hidden` and `#Definitions` are found too.
    pub fn lookup(&self, path: &str) -> Result<Value<'_>, Errors> {
        self.root().lookup(path)
    }

    /// Evaluates an expression in the scope of the instance's top-level fields.
    pub fn evaluate(&self, expression: &str) -> Result<Value<'_>, Errors> {
        let parsed = parser::parse_expression("expression", expression, &self.limits)?;
        let (resolved, free) = resolve::resolve_expression(&parsed)?;
        self.check_free(&free)?;
        let mut evaluator = self.evaluator.borrow_mut();
        let conjunct = Conjunct { term: Term::Expr(resolved), env: None, ties: Ties::default() };
        let node = evaluator.anonymous(conjunct);
        evaluator.evaluate(node);
        Ok(Value::new(self, node))
    }

    fn check_free(&self, free: &std::collections::BTreeMap<String, Position>) -> Result<(), Errors> {
        let mut evaluator = self.evaluator.borrow_mut();
        let root = evaluator.root;
        evaluator.evaluate(root);
        let unknown = free.iter().filter(|(name, _)| {
            let label = crate::label::Label::ident(name);
            !evaluator.shape(root).arms.contains_key(&label)
        });
        let errors = unknown.map(|(name, position)| {
            Error::new(ErrorKind::Reference, format!("reference `{name}` not found")).at(position)
        });
        Errors::new(errors.collect()).map_or(Ok(()), Err)
    }

    /// Returns how many steps the evaluation has taken so far.
    pub fn steps(&self) -> u64 {
        self.evaluator.borrow().budget.steps()
    }
}
