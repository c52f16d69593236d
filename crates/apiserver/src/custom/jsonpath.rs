//! The subset of JSONPath that printer columns and selectable fields use: `.spec.replicas`, `.a['b.c'][0]`,
//! `.list[*].x`, `.conditions[?(@.type=="Ready")].status`, `..name`.

use serde_json::Value;

/// A parsed path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct JsonPath(Vec<Step>);

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    /// From, to, step; negative values count from the end.
    Slice(Option<i64>, Option<i64>, i64),
    Index(i64),
    All,
    /// The value itself and all its descendants.
    Below,
    Any(Vec<Step>),
    Filter(Vec<Step>, Compare, Operand),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Compare {
    Exists,
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
enum Operand {
    Value(Value),
    Path(Vec<Step>),
}

impl JsonPath {
    /// Parses a path; `None` if it is invalid.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parser = Parser { rest: text, depth: 0 };
        let steps = parser.steps()?;
        parser.rest.is_empty().then_some(Self(steps))
    }

    /// Returns the values that the path finds, in order.
    pub(super) fn find<'v>(&self, document: &'v Value) -> Vec<&'v Value> {
        follow(&self.0, vec![document])
    }

    /// Returns the first of them.
    pub(super) fn first<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.find(document).into_iter().next()
    }
}

/// Maximum nesting of filters. Each takes a few stack frames, and CRDs are read again at every start: one that
/// exhausted the stack would take the server down for good.
const MAX_DEPTH: usize = 16;

struct Parser<'t> {
    rest: &'t str,
    /// The current nesting of filters.
    depth: usize,
}

impl Parser<'_> {
    fn consume(&mut self, token: &str) -> bool {
        match self.rest.strip_prefix(token) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn steps(&mut self) -> Option<Vec<Step>> {
        let mut steps = Vec::new();
        loop {
            if self.consume("..") {
                steps.push(Step::Below);
                if !self.rest.starts_with('[') {
                    steps.push(self.field()?);
                }
            } else if self.consume(".") {
                if self.rest.is_empty() || self.rest.starts_with('[') {
                    continue;
                }
                steps.push(self.field()?);
            } else if self.consume("[") {
                steps.push(self.bracket()?);
            } else {
                return Some(steps);
            }
        }
    }

    /// Parses a name up to the next step; a backslash escapes the next character.
    fn field(&mut self) -> Option<Step> {
        let mut name = String::new();
        let mut letters = self.rest.char_indices();
        let end = loop {
            match letters.next() {
                None => break self.rest.len(),
                Some((_, '\\')) => name.push(letters.next()?.1),
                Some((at, '.' | '[' | ']' | ')' | ' ' | '=' | '!' | '<' | '>')) => break at,
                Some((_, letter)) => name.push(letter),
            }
        };
        self.rest = &self.rest[end..];
        match name.as_str() {
            "" => None,
            "*" => Some(Step::All),
            _ => Some(Step::Field(name)),
        }
    }

    fn bracket(&mut self) -> Option<Step> {
        self.skip_spaces();
        if self.consume("?(") {
            self.depth += 1;
            let step = if self.depth > MAX_DEPTH { None } else { self.filter() }?;
            self.depth -= 1;
            self.skip_spaces();
            return (self.consume(")") && self.consume("]")).then_some(step);
        }
        let mut steps = vec![self.element()?];
        self.skip_spaces();
        while self.consume(",") {
            steps.push(self.element()?);
            self.skip_spaces();
        }
        if !self.consume("]") {
            return None;
        }
        Some(if steps.len() == 1 { steps.remove(0) } else { Step::Any(steps) })
    }

    fn element(&mut self) -> Option<Step> {
        self.skip_spaces();
        if self.consume("*") {
            return Some(Step::All);
        }
        if let Some(Value::String(name)) = self.quoted() {
            return Some(Step::Field(name));
        }
        let from = self.number();
        if !self.consume(":") {
            return from.map(Step::Index);
        }
        let to = self.number();
        let step = if self.consume(":") { self.number().unwrap_or(1) } else { 1 };
        (step > 0).then_some(Step::Slice(from, to, step))
    }

    fn number(&mut self) -> Option<i64> {
        let is_part = |(at, letter): (usize, char)| letter.is_ascii_digit() || at == 0 && letter == '-';
        let length = self.rest.char_indices().take_while(|found| is_part(*found)).count();
        let number = self.rest[..length].parse().ok()?;
        self.rest = &self.rest[length..];
        Some(number)
    }

    fn quoted(&mut self) -> Option<Value> {
        let quote = self.rest.chars().next().filter(|letter| matches!(letter, '\'' | '"'))?;
        let inside = &self.rest[1..];
        let end = inside.find(quote)?;
        self.rest = &inside[end + 1..];
        Some(inside[..end].into())
    }

    fn filter(&mut self) -> Option<Step> {
        self.skip_spaces();
        if !self.consume("@") {
            return None;
        }
        let left = self.steps()?;
        self.skip_spaces();
        let operators = [
            ("==", Compare::Equal),
            ("!=", Compare::NotEqual),
            ("<=", Compare::LessOrEqual),
            (">=", Compare::GreaterOrEqual),
            ("<", Compare::Less),
            (">", Compare::Greater),
        ];
        for (token, compare) in operators {
            if self.consume(token) {
                let right = self.operand()?;
                return Some(Step::Filter(left, compare, right));
            }
        }
        Some(Step::Filter(left, Compare::Exists, Operand::Value(Value::Null)))
    }

    fn operand(&mut self) -> Option<Operand> {
        self.skip_spaces();
        if self.consume("@") {
            return self.steps().map(Operand::Path);
        }
        if let Some(text) = self.quoted() {
            return Some(Operand::Value(text));
        }
        let end = self.rest.find([')', ' ']).unwrap_or(self.rest.len());
        let word = &self.rest[..end];
        self.rest = &self.rest[end..];
        serde_json::from_str(word).ok().map(Operand::Value)
    }
}

fn follow<'v>(steps: &[Step], mut found: Vec<&'v Value>) -> Vec<&'v Value> {
    for step in steps {
        found = found.into_iter().flat_map(|value| step.from(value)).collect();
    }
    found
}

impl Step {
    fn from<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        match self {
            Self::Field(name) => value.as_object().and_then(|fields| fields.get(name)).into_iter().collect(),
            Self::Index(index) => {
                let items = value.as_array().map_or(&[][..], Vec::as_slice);
                place(*index, items.len()).and_then(|at| items.get(at)).into_iter().collect()
            }
            Self::Slice(from, to, step) => slice(value, *from, *to, *step),
            Self::All => children(value),
            Self::Below => below(value),
            Self::Any(steps) => steps.iter().flat_map(|step| step.from(value)).collect(),
            Self::Filter(left, compare, right) => {
                let matches = |item: &&Value| matches(item, left, *compare, right);
                children(value).into_iter().filter(matches).collect()
            }
        }
    }
}

fn place(index: i64, length: usize) -> Option<usize> {
    let length = i64::try_from(length).ok()?;
    usize::try_from(if index < 0 { index + length } else { index }).ok()
}

fn slice(value: &Value, from: Option<i64>, to: Option<i64>, step: i64) -> Vec<&Value> {
    let items = value.as_array().map_or(&[][..], Vec::as_slice);
    let at = |index: i64| place(index, items.len()).unwrap_or(0).min(items.len());
    let (start, end) = (from.map_or(0, at), to.map_or(items.len(), at));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    items.get(start..end.max(start)).unwrap_or_default().iter().step_by(step).collect()
}

fn children(value: &Value) -> Vec<&Value> {
    match value {
        Value::Array(items) => items.iter().collect(),
        Value::Object(fields) => fields.values().collect(),
        _ => Vec::new(),
    }
}

fn below(value: &Value) -> Vec<&Value> {
    let mut all = vec![value];
    for child in children(value) {
        all.extend(below(child));
    }
    all
}

fn matches(item: &Value, left: &[Step], compare: Compare, right: &Operand) -> bool {
    let Some(left) = follow(left, vec![item]).into_iter().next() else { return false };
    let right = match right {
        Operand::Value(value) => Some(value),
        Operand::Path(steps) => follow(steps, vec![item]).into_iter().next(),
    };
    if compare == Compare::Exists {
        return true;
    }
    let Some(right) = right else { return false };
    let order = match (left, right) {
        (Value::String(left), Value::String(right)) => Some(left.cmp(right)),
        (Value::Number(left), Value::Number(right)) => {
            left.as_f64().zip(right.as_f64()).and_then(|(left, right)| left.partial_cmp(&right))
        }
        (left, right) if left == right => Some(std::cmp::Ordering::Equal),
        _ => None,
    };
    match compare {
        Compare::Exists => true,
        Compare::Equal => order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::NotEqual => !order.is_some_and(std::cmp::Ordering::is_eq),
        Compare::Less => order.is_some_and(std::cmp::Ordering::is_lt),
        Compare::LessOrEqual => order.is_some_and(std::cmp::Ordering::is_le),
        Compare::Greater => order.is_some_and(std::cmp::Ordering::is_gt),
        Compare::GreaterOrEqual => order.is_some_and(std::cmp::Ordering::is_ge),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_values() {
        let document = json!({
            "spec": {"n": 3, "l": [{"t": "a", "v": 1}, {"t": "b", "v": 2}]},
            "metadata": {"annotations": {"a.b/c": "x"}},
        });
        let check = |path: &str, expected: Value| {
            let found = JsonPath::parse(path).unwrap();
            assert_eq!(json!(found.find(&document)), expected, "{path}");
        };
        check(".spec.n", json!([3]));
        check(".spec.absent", json!([]));
        check(".spec.l[0].v", json!([1]));
        check(".spec.l[-1].v", json!([2]));
        check(".spec.l[*].v", json!([1, 2]));
        check(".spec.l[0:1].t", json!(["a"]));
        check(r#".spec.l[?(@.t=="b")].v"#, json!([2]));
        check(".spec.l[?(@.v > 1)].t", json!(["b"]));
        check(r".metadata.annotations.a\.b/c", json!(["x"]));
        check(".metadata.annotations['a.b/c']", json!(["x"]));
        check("..v", json!([1, 2]));
    }

    #[test]
    fn invalid_paths_are_rejected() {
        for text in [".a[", ".a[?(b)]", ".a]"] {
            assert_eq!(JsonPath::parse(text), None, "{text}");
        }
        let nested = |times: usize| format!(".a{}{}", "[?(@.b".repeat(times), ")]".repeat(times));
        assert!(JsonPath::parse(&nested(16)).is_some());
        for times in [17, 100_000] {
            assert_eq!(JsonPath::parse(&nested(times)), None, "{times}");
        }
    }
}
