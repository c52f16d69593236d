//! Arithmetic expressions of the shell: integers, variables, and C's operators without assignment. Pure.

use super::Stop;

/// Returns the value of a variable.
type Lookup<'l> = &'l dyn Fn(&str) -> Result<String, Stop>;

/// The maximum nesting depth of an expression, which bounds the stack.
const MAX_DEPTH: usize = 32;

/// Evaluates an expression. `None` if it is malformed, or divides by zero.
pub(super) fn evaluate(text: &str, lookup: Lookup<'_>) -> Result<Option<i64>, Stop> {
    let mut parser = Parser { rest: text.trim(), lookup, depth: 0 };
    if parser.rest.is_empty() {
        return Ok(Some(0));
    }
    let value = match parser.binary(0) {
        Ok(value) => value,
        Err(Failure::Malformed) => return Ok(None),
        Err(Failure::Stopped(stop)) => return Err(stop),
    };
    Ok(Some(value).filter(|_| parser.rest.is_empty()))
}

enum Failure {
    Malformed,
    Stopped(Stop),
}

struct Parser<'t> {
    rest: &'t str,
    lookup: Lookup<'t>,
    depth: usize,
}

/// Operators by how tightly they bind, loosest first. Longer ones come before their prefixes.
const OPERATORS: &[&[&str]] = &[
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<=", ">=", "<", ">"],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Parser<'_> {
    fn binary(&mut self, level: usize) -> Result<i64, Failure> {
        let Some(operators) = OPERATORS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(operator) = self.operator(operators) {
            let right = self.binary(level + 1)?;
            left = apply(operator, left, right).ok_or(Failure::Malformed)?;
        }
        Ok(left)
    }

    fn operator(&mut self, operators: &[&'static str]) -> Option<&'static str> {
        let found = operators.iter().find(|operator| self.rest.starts_with(**operator))?;
        // A part of a longer operator belongs to another level.
        let is_longer = ["||", "&&", "<<", ">>", "<=", ">="]
            .iter()
            .any(|longer| self.rest.starts_with(longer) && longer.len() > found.len());
        (!is_longer).then(|| {
            self.rest = self.rest[found.len()..].trim_start();
            *found
        })
    }

    fn unary(&mut self) -> Result<i64, Failure> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(Failure::Malformed);
        }
        let value = self.unary_inside();
        self.depth -= 1;
        value
    }

    fn unary_inside(&mut self) -> Result<i64, Failure> {
        let first = self.rest.chars().next().ok_or(Failure::Malformed)?;
        let after = self.rest[first.len_utf8()..].trim_start();
        match first {
            '-' | '+' | '!' | '~' => {
                self.rest = after;
                let value = self.unary()?;
                Ok(match first {
                    '-' => value.wrapping_neg(),
                    '!' => i64::from(value == 0),
                    '~' => !value,
                    _ => value,
                })
            }
            '(' => {
                self.rest = after;
                let value = self.binary(0)?;
                self.rest = self.rest.strip_prefix(')').ok_or(Failure::Malformed)?.trim_start();
                Ok(value)
            }
            _ => self.operand(),
        }
    }

    fn operand(&mut self) -> Result<i64, Failure> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        if word.starts_with(|c: char| c.is_ascii_digit()) {
            return number(word).ok_or(Failure::Malformed);
        }
        if word.is_empty() {
            return Err(Failure::Malformed);
        }
        let value = (self.lookup)(word).map_err(Failure::Stopped)?;
        let value = value.trim();
        if value.is_empty() { Ok(0) } else { number(value).ok_or(Failure::Malformed) }
    }
}

fn number(text: &str) -> Option<i64> {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let value = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => i64::from_str_radix(&digits[2..], 16),
        [b'0', _, ..] => i64::from_str_radix(digits, 8),
        _ => digits.parse(),
    };
    value.ok().map(|value: i64| value.wrapping_mul(sign))
}

fn apply(operator: &str, left: i64, right: i64) -> Option<i64> {
    let truth = |holds: bool| Some(i64::from(holds));
    match operator {
        "||" => truth(left != 0 || right != 0),
        "&&" => truth(left != 0 && right != 0),
        "|" => Some(left | right),
        "^" => Some(left ^ right),
        "&" => Some(left & right),
        "==" => truth(left == right),
        "!=" => truth(left != right),
        "<=" => truth(left <= right),
        ">=" => truth(left >= right),
        "<" => truth(left < right),
        ">" => truth(left > right),
        "<<" => Some(left.wrapping_shl(u32::try_from(right).ok()?)),
        ">>" => Some(left.wrapping_shr(u32::try_from(right).ok()?)),
        "+" => Some(left.wrapping_add(right)),
        "-" => Some(left.wrapping_sub(right)),
        "*" => Some(left.wrapping_mul(right)),
        "/" => left.checked_div(right),
        _ => left.checked_rem(right),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_have_the_value_of_the_shell() {
        let lookup = |name: &str| {
            let value = match name {
                "I" => "41",
                "LEAST" => "--9223372036854775808",
                _ => "",
            };
            Ok(value.to_owned())
        };
        let check = |text: &str, expected: Option<i64>| {
            assert_eq!(evaluate(text, &lookup), Ok(expected), "{text}");
        };
        check("1 + 2 * 3", Some(7));
        check("(1+2)*3 - -1", Some(10));
        check("-9223372036854775807 - 1", Some(i64::MIN));
        check("-0x8000000000000000", None);
        check("LEAST", Some(i64::MIN));
        check("I + 1", Some(42));
        check("UNSET", Some(0));
        check("7 % 4 == 3 && 1 < 2", Some(1));
        check("1 << 4 | 1", Some(17));
        check("0x10 + 010", Some(24));
        check("!0", Some(1));
        check("1 / 0", None);
        check("1 +", None);
        check("1 2", None);
        check("", Some(0));
        check(&"(".repeat(1000), None);
        check("9223372036854775807 + 1", Some(i64::MIN));
    }
}
