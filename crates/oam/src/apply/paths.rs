//! Values at paths such as `spec.template.spec.containers[0].image` or `metadata.labels["a/b"]`.

use serde_json::{Value, json};

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Field(String),
    Index(usize),
}

/// The largest index in a path: a list of that length is created.
const LARGEST_INDEX: usize = 1_000;

fn parse(path: &str) -> Option<Vec<Step>> {
    let (mut steps, mut rest) = (Vec::new(), path.trim());
    while !rest.is_empty() {
        if let Some(tail) = rest.strip_prefix('[') {
            let (inside, tail) = tail.split_once(']')?;
            let quoted = inside.trim_matches(['"', '\'']);
            steps.push(match quoted == inside {
                true => Step::Index(inside.trim().parse().ok()?),
                false => Step::Field(quoted.to_owned()),
            });
            rest = tail.strip_prefix('.').unwrap_or(tail);
            continue;
        }
        let end = rest.find(['.', '[']).unwrap_or(rest.len());
        steps.push(Step::Field(rest[..end].to_owned()));
        rest = &rest[end..];
        rest = rest.strip_prefix('.').unwrap_or(rest);
    }
    Some(steps)
}

/// Returns the value at a path.
pub(crate) fn get<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    parse(path)?.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get(name),
        Step::Index(index) => value.get(index),
    })
}

/// Sets the value at a path, and creates missing parents. The error says what is in the way.
pub(crate) fn set(value: &mut Value, path: &str, new: Value) -> Result<(), String> {
    let steps =
        parse(path).filter(|steps| !steps.is_empty()).ok_or_else(|| format!("{path:?} is no path"))?;
    let mut target = value;
    for step in &steps {
        target = entered(target, step).ok_or_else(|| format!("{path} does not fit to what is there"))?;
    }
    *target = new;
    Ok(())
}

fn entered<'a>(value: &'a mut Value, step: &Step) -> Option<&'a mut Value> {
    match step {
        Step::Field(name) => {
            if value.is_null() {
                *value = json!({});
            }
            Some(value.as_object_mut()?.entry(name.clone()).or_insert(Value::Null))
        }
        Step::Index(index) => {
            if value.is_null() {
                *value = json!([]);
            }
            let items = value.as_array_mut()?;
            if *index > LARGEST_INDEX {
                return None;
            }
            while items.len() <= *index {
                items.push(json!({}));
            }
            items.get_mut(*index)
        }
    }
}

/// Removes the value at a path, if present.
pub(crate) fn remove(value: &mut Value, path: &str) {
    let Some(steps) = parse(path) else { return };
    let Some((last, before)) = steps.split_last() else { return };
    let parent = before.iter().try_fold(value, |value, step| match step {
        Step::Field(name) => value.get_mut(name),
        Step::Index(index) => value.get_mut(index),
    });
    if let (Some(Value::Object(fields)), Step::Field(name)) = (parent, last) {
        fields.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reaches_fields_and_elements() {
        let value = json!({"a": [{"b/c": 1}]});
        assert_eq!(get(&value, "a[0][\"b/c\"]"), Some(&json!(1)));
        assert_eq!(get(&value, "a[1].x"), None);
    }

    #[test]
    fn setting_makes_what_is_missing() {
        let mut value = json!({"env": [{"name": "A"}]});
        set(&mut value, "env[0].value", json!("x")).unwrap();
        set(&mut value, "slack.message.text", json!("hi")).unwrap();
        assert_eq!(
            value,
            json!({"env": [{"name": "A", "value": "x"}], "slack": {"message": {"text": "hi"}}})
        );
        assert!(set(&mut value, "env.x", json!(1)).is_err());
    }
}
