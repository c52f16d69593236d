//! Values that `watches.yaml` overrides, by path: as `helm --set-string` reads them.                          (pure)
//!
//! ```text
//!  image.tag=1        a field of a field        list[0].name=a     an item of a list
//!  annotations.a\.b=1 a dot in a name           list={a,b}         a list of texts
//!  a=1,b=2            several at once
//! ```

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Map, Value};

/// The greatest index of a list, as in Helm.
const MAX_INDEX: usize = 65_536;
/// The deepest path, as in Helm.
const MAX_DEPTH: usize = 30;

/// One step of a path.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    Field(String),
    Item(usize),
}

/// Sets an override in values.
pub(super) fn set(values: &mut Value, path: &str, value: &str) -> Result<(), String> {
    for (steps, value) in parse(&format!("{path}={value}"))? {
        put(values, &steps, value);
    }
    Ok(())
}

fn parse(text: &str) -> Result<Vec<(Vec<Step>, Value)>, String> {
    let mut letters = text.chars().peekable();
    let mut all = Vec::new();
    loop {
        let steps = path(&mut letters)?;
        all.push((steps, value(&mut letters)?));
        if letters.next().is_none() {
            return Ok(all);
        }
    }
}

/// Reads a path and the `=` after it.
fn path(letters: &mut Peekable<Chars<'_>>) -> Result<Vec<Step>, String> {
    let mut steps = Vec::new();
    loop {
        let (name, stop) = until(letters, &['=', '.', '[', ',']);
        if !name.is_empty() {
            steps.push(Step::Field(name));
        }
        if steps.len() > MAX_DEPTH {
            return Err(format!("the path has more than {MAX_DEPTH} fields"));
        }
        match stop {
            Some('=') if !steps.is_empty() => return Ok(steps),
            Some('=') => return Err("expected a path before =".into()),
            Some('.') => {}
            Some('[') => {
                let (index, end) = until(letters, &[']']);
                let index = index.parse().ok().filter(|index| *index <= MAX_INDEX && end.is_some());
                steps.push(Step::Item(index.ok_or("expected an index such as [0]")?));
            }
            _ => return Err("expected a path and a value".into()),
        }
    }
}

/// Reads a value, up to a comma, which stays.
fn value(letters: &mut Peekable<Chars<'_>>) -> Result<Value, String> {
    if letters.peek() != Some(&'{') {
        let mut text = String::new();
        while let Some(letter) = letters.next_if(|letter| *letter != ',') {
            text.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
        }
        return Ok(text.into());
    }
    letters.next();
    let mut items = Vec::new();
    loop {
        let (item, stop) = until(letters, &[',', '}']);
        match stop {
            Some('}') if items.is_empty() && item.is_empty() => break,
            Some('}') => {
                items.push(Value::from(item));
                break;
            }
            Some(_) => items.push(item.into()),
            None => return Err("expected } at the end of a list".into()),
        }
    }
    match letters.peek() {
        None | Some(',') => Ok(items.into()),
        Some(other) => Err(format!("expected , after a list, found {other:?}")),
    }
}

/// Reads up to one of some letters. Returns it too.
fn until(letters: &mut Peekable<Chars<'_>>, stops: &[char]) -> (String, Option<char>) {
    let mut text = String::new();
    while let Some(letter) = letters.next() {
        if stops.contains(&letter) {
            return (text, Some(letter));
        }
        text.push(if letter == '\\' { letters.next().unwrap_or('\\') } else { letter });
    }
    (text, None)
}

fn put(at: &mut Value, steps: &[Step], value: Value) {
    let Some((step, rest)) = steps.split_first() else {
        *at = value;
        return;
    };
    match step {
        Step::Field(name) => {
            if !at.is_object() {
                *at = Map::new().into();
            }
            if let Some(fields) = at.as_object_mut() {
                put(fields.entry(name.as_str()).or_insert(Value::Null), rest, value);
            }
        }
        Step::Item(index) => {
            if !at.is_array() {
                *at = Vec::<Value>::new().into();
            }
            if let Some(items) = at.as_array_mut() {
                if items.len() <= *index {
                    items.resize(*index + 1, Value::Null);
                }
                put(&mut items[*index], rest, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_names_a_field_of_the_values() {
        let check = |path: &str, value: &str, expected: Value| {
            let mut values = json!({"image": {"name": "shop", "tag": 1}, "list": [{"a": 1}]});
            set(&mut values, path, value).expect(path);
            assert_eq!(values, expected, "{path}");
        };
        let with = |image: Value, list: Value| json!({"image": image, "list": list});
        let (image, list) = (json!({"name": "shop", "tag": 1}), json!([{"a": 1}]));
        check("image.tag", "2", with(json!({"name": "shop", "tag": "2"}), list.clone()));
        check("image", "x", with(json!("x"), list.clone()));
        check("image.a\\.b", "x=y", with(json!({"name": "shop", "tag": 1, "a.b": "x=y"}), list.clone()));
        check("list[0].b", "", with(image.clone(), json!([{"a": 1, "b": ""}])));
        check("list[1]", "x", with(image.clone(), json!([{"a": 1}, "x"])));
        check("list", "{a,b\\,c}", with(image.clone(), json!(["a", "b,c"])));
        check("list", "{}", with(image.clone(), json!([])));
        check("list", "a\\,b,image=x", with(json!("x"), json!("a,b")));
        check("image.tag", "null", with(json!({"name": "shop", "tag": "null"}), list));
    }

    #[test]
    fn mistakes_are_refused() {
        let check =
            |path: &str, value: &str| assert!(set(&mut json!({}), path, value).is_err(), "{path}={value}");
        check("", "x");
        check("a[", "x");
        check("a[x]", "x");
        check("a[99999999]", "x");
        check("a", "x,");
        check("a", "{x");
        check("a", "{x}y");
        check(&"a.".repeat(40), "x");
    }
}
