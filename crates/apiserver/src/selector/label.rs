//! Label selectors: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1`.

use crate::facts::Facts;
use crate::names;
use crate::status::Status;

/// A list of requirements that must all match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Operator {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl LabelSelector {
    pub fn parse(text: &str) -> Result<Self, Status> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        let parsed = Parser::new(text).selector().map_err(Status::bad_request)?;
        Ok(Self(parsed))
    }

    pub fn is_everything(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn requirements(&self) -> &[Requirement] {
        &self.0
    }

    pub fn matches(&self, facts: &Facts) -> bool {
        self.matches_labels(|key| facts.label(key))
    }

    /// Whether labels, looked up by key, satisfy every requirement.
    pub fn matches_labels<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        self.0.iter().all(|requirement| requirement.holds(label(&requirement.key)))
    }
}

impl Requirement {
    /// Converts the requirement to an object, with sorted values; numeric comparisons have no such form.
    pub(crate) fn written(&self) -> Option<serde_json::Value> {
        let sorted = |values: &[String]| {
            let mut values = values.to_vec();
            values.sort_unstable();
            values
        };
        let (operator, values) = match &self.operator {
            Operator::In(values) => ("In", sorted(values)),
            Operator::NotIn(values) => ("NotIn", sorted(values)),
            Operator::Exists => ("Exists", Vec::new()),
            Operator::DoesNotExist => ("DoesNotExist", Vec::new()),
            Operator::GreaterThan(_) | Operator::LessThan(_) => return None,
        };
        let mut written = serde_json::json!({"key": self.key, "operator": operator});
        if !values.is_empty() {
            written["values"] = values.into();
        }
        Some(written)
    }

    fn holds(&self, value: Option<&str>) -> bool {
        let number = || value.and_then(|value| value.parse::<i64>().ok());
        match &self.operator {
            Operator::In(values) => value.is_some_and(|value| has(values, value)),
            Operator::NotIn(values) => value.is_none_or(|value| !has(values, value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
            Operator::LessThan(bound) => number().is_some_and(|number| number < *bound),
        }
    }
}

/// Whether a value is in a list. Values are sorted: there may be thousands, and every record is checked.
fn has(values: &[String], value: &str) -> bool {
    values.binary_search_by(|own| own.as_str().cmp(value)).is_ok()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    Broken,
    End,
    Close,
    Comma,
    Not,
    DoubleEquals,
    Equals,
    Greater,
    Less,
    Identifier,
    In,
    NotEquals,
    NotIn,
    Open,
}

fn token(literal: &str) -> Option<Token> {
    Some(match literal {
        ")" => Token::Close,
        "," => Token::Comma,
        "!" => Token::Not,
        "==" => Token::DoubleEquals,
        "=" => Token::Equals,
        ">" => Token::Greater,
        "in" => Token::In,
        "<" => Token::Less,
        "!=" => Token::NotEquals,
        "notin" => Token::NotIn,
        "(" => Token::Open,
        _ => return None,
    })
}

fn is_symbol(byte: u8) -> bool {
    b"=!(),><".contains(&byte)
}

fn is_space(byte: u8) -> bool {
    b" \t\r\n".contains(&byte)
}

struct Lexer<'a> {
    rest: &'a str,
}

impl<'a> Lexer<'a> {
    fn next(&mut self) -> (Token, String) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
        match self.rest.bytes().next() {
            None | Some(0) => (Token::End, String::new()),
            Some(byte) if is_symbol(byte) => self.symbol(),
            Some(_) => self.word(),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(length);
        self.rest = rest;
        taken
    }

    fn word(&mut self) -> (Token, String) {
        let end =
            self.rest.bytes().position(|b| b == 0 || is_symbol(b) || is_space(b)).unwrap_or(self.rest.len());
        let word = self.take(end);
        (token(word).unwrap_or(Token::Identifier), word.into())
    }

    /// Reads the longest symbol at this position.
    fn symbol(&mut self) -> (Token, String) {
        // No symbol is longer; reading on would make a text of symbols quadratic.
        let run = self.rest.bytes().take(2).take_while(|byte| is_symbol(*byte)).count();
        let longest = (1..=run).take_while(|end| token(&self.rest[..*end]).is_some()).last();
        match longest {
            Some(end) => {
                let literal = self.take(end);
                (token(literal).unwrap_or(Token::Broken), literal.into())
            }
            None => {
                let literal = self.take(run);
                (Token::Broken, format!("error expected: keyword found '{literal}'"))
            }
        }
    }
}

struct Parser {
    tokens: Vec<(Token, String)>,
    position: usize,
}

type Parsed<T> = Result<T, String>;

impl Parser {
    fn new(text: &str) -> Self {
        let mut lexer = Lexer { rest: text };
        let mut tokens = Vec::new();
        loop {
            let scanned = lexer.next();
            let is_end = scanned.0 == Token::End;
            tokens.push(scanned);
            if is_end {
                return Self { tokens, position: 0 };
            }
        }
    }

    /// Returns the next token; `in` and `notin` are plain words where a value is expected.
    fn peek(&self, values: bool) -> (Token, &str) {
        let (token, literal) = &self.tokens[self.position.min(self.tokens.len() - 1)];
        let token = match token {
            Token::In | Token::NotIn if values => Token::Identifier,
            other => *other,
        };
        (token, literal)
    }

    fn take(&mut self, values: bool) -> (Token, String) {
        let (token, literal) = self.peek(values);
        let taken = (token, literal.to_string());
        self.position += 1;
        taken
    }

    fn selector(mut self) -> Parsed<Vec<Requirement>> {
        let mut requirements = Vec::new();
        loop {
            match self.peek(true) {
                (Token::Identifier | Token::Not, _) => {
                    let requirement =
                        self.requirement().map_err(|why| format!("unable to parse requirement: {why}"))?;
                    requirements.push(requirement);
                    match self.take(true) {
                        (Token::End, _) => return Ok(requirements),
                        (Token::Comma, _) => match self.peek(true) {
                            (Token::Identifier | Token::Not, _) => {}
                            (_, found) => {
                                return Err(format!("found '{found}', expected: identifier after ','"));
                            }
                        },
                        (_, found) => {
                            return Err(format!("found '{found}', expected: ',' or 'end of string'"));
                        }
                    }
                }
                (Token::End, _) => return Ok(requirements),
                (_, found) => {
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
        }
    }

    fn requirement(&mut self) -> Parsed<Requirement> {
        let (first, mut literal) = self.take(true);
        let negated = first == Token::Not;
        let mut kind = first;
        if negated {
            (kind, literal) = self.take(true);
        }
        if kind != Token::Identifier {
            return Err(format!("found '{literal}', expected: identifier"));
        }
        let key = literal;
        let complaints = names::qualified_name(&key);
        if !complaints.is_empty() {
            return Err(format!("<nil>: Invalid value: {key:?}: {}", complaints.join("; ")));
        }
        if negated {
            return Ok(Requirement { key, operator: Operator::DoesNotExist });
        }
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(Requirement { key, operator: Operator::Exists });
        }
        let operator = self.operator(&key)?;
        Ok(Requirement { key, operator })
    }

    fn operator(&mut self, key: &str) -> Parsed<Operator> {
        let (token, found) = self.take(false);
        let values = match token {
            Token::In | Token::NotIn => self.values()?,
            Token::Equals | Token::DoubleEquals | Token::NotEquals | Token::Greater | Token::Less => {
                vec![self.exact_value()?]
            }
            _ => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let bound = || match values[0].parse::<i64>() {
            Ok(bound) => Ok(bound),
            Err(_) => Err(format!(
                "values[0]: Invalid value: {:?}: for 'Gt', 'Lt' operators, the value must be an integer",
                values[0]
            )),
        };
        for (at, value) in values.iter().enumerate() {
            let complaints = names::label_value(value);
            if !complaints.is_empty() {
                return Err(format!(
                    "values[{at}][{key}]: Invalid value: {value:?}: {}",
                    complaints.join("; ")
                ));
            }
        }
        Ok(match token {
            Token::Greater => Operator::GreaterThan(bound()?),
            Token::Less => Operator::LessThan(bound()?),
            Token::NotIn | Token::NotEquals => Operator::NotIn(values),
            _ => Operator::In(values),
        })
    }

    fn exact_value(&mut self) -> Parsed<String> {
        if matches!(self.peek(true).0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.take(true) {
            (Token::Identifier, value) => Ok(value),
            (_, found) => Err(format!("found '{found}', expected: identifier")),
        }
    }

    fn values(&mut self) -> Parsed<Vec<String>> {
        let (token, found) = self.take(true);
        if token != Token::Open {
            return Err(format!("found '{found}' expected: '('"));
        }
        match self.peek(true) {
            (Token::Identifier | Token::Comma, _) => {
                let mut values = self.value_list()?;
                self.take(true);
                values.sort();
                values.dedup();
                Ok(values)
            }
            (Token::Close, _) => {
                self.take(true);
                Ok(vec![String::new()])
            }
            (_, found) => Err(format!("found '{found}', expected: ',', ')' or identifier")),
        }
    }

    /// Parses the values up to the closing parenthesis, which is not consumed; nothing between two commas is an empty
    /// value.
    fn value_list(&mut self) -> Parsed<Vec<String>> {
        let mut values = Vec::new();
        loop {
            match self.take(true) {
                (Token::Identifier, value) => {
                    values.push(value);
                    match self.peek(true) {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => return Ok(values),
                        (_, found) => return Err(format!("found '{found}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() {
                        values.push(String::new());
                    }
                    match self.peek(true).0 {
                        Token::Close => {
                            values.push(String::new());
                            return Ok(values);
                        }
                        Token::Comma => {
                            self.take(true);
                            values.push(String::new());
                        }
                        _ => {}
                    }
                }
                (_, found) => return Err(format!("found '{found}', expected: ',', or identifier")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(selector: &str, labels: &[(&str, &str)]) -> bool {
        let find = |key: &str| labels.iter().find(|(k, _)| *k == key).map(|(_, v)| *v);
        LabelSelector::parse(selector).unwrap().matches_labels(find)
    }

    #[test]
    fn selectors_choose_as_v1_34_does() {
        let labels = [("x", "1"), ("y", ""), ("in", "notin")];
        for (selector, expected) in [
            ("", true),
            ("x=1", true),
            ("x==1", true),
            ("x = 2", false),
            ("x!=1", false),
            ("z!=1", true),
            ("x in (1, 2)", true),
            ("x in ()", false),
            ("y in (,)", true),
            ("y=", true),
            ("x notin (1)", false),
            ("z notin (1)", true),
            ("x", true),
            ("!x", false),
            ("!z", true),
            ("x>0,x<2", true),
            ("x>1", false),
            ("in in (notin,in)", true),
            ("x=1,z", false),
        ] {
            assert_eq!(matches(selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn a_bad_selector_is_rejected_with_its_position() {
        for (selector, message) in [
            ("x in", "unable to parse requirement: found '' expected: '('"),
            ("x=1,", "found '', expected: identifier after ','"),
            ("x=1 y", "found 'y', expected: ',' or 'end of string'"),
            (",x", "found ',', expected: !, identifier, or 'end of string'"),
            (
                "x>a",
                "unable to parse requirement: values[0]: Invalid value: \"a\": for 'Gt', 'Lt' operators, the value must be an integer",
            ),
            ("x in (a", "unable to parse requirement: found '', expected: ',' or ')'"),
            ("x foo", "unable to parse requirement: found 'foo', expected: in, notin, =, ==, !=, gt, lt"),
        ] {
            assert_eq!(LabelSelector::parse(selector).unwrap_err().message, message, "{selector}");
        }
    }
}
