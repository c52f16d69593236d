//! Whether two JSON values are equal, where `1` equals `1.0`: a hook may return either, and the API server stores one.

use serde_json::{Number, Value};

pub(crate) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Number(one), Value::Number(other)) => same_number(one, other),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            one.len() == other.len()
                && one.iter().all(|(name, value)| other.get(name).is_some_and(|other| same(value, other)))
        }
        (one, other) => one == other,
    }
}

fn same_number(one: &Number, other: &Number) -> bool {
    one == other || (one.is_f64() || other.is_f64()) && one.as_f64() == other.as_f64()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_compared_by_value() {
        let check = |one: Value, other: Value, expected: bool| {
            assert_eq!((same(&one, &other), same(&other, &one)), (expected, expected), "{one} and {other}");
        };
        check(json!({"a": [1, {"b": 2}]}), json!({"a": [1.0, {"b": 2.0}]}), true);
        check(json!(1), json!(1.5), false);
        check(json!(9_007_199_254_740_993_i64), json!(9_007_199_254_740_992_i64), false);
        check(json!({"a": 1}), json!({"a": 1, "b": null}), false);
        check(json!([1]), json!([1, 1]), false);
        check(json!("1"), json!(1), false);
    }
}
