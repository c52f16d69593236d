//! Joins several errors into one message as v1.34 does: without duplicates, in brackets if there is more than one.

pub(crate) fn aggregate<T: AsRef<str>>(errors: &[T]) -> Option<String> {
    let mut distinct: Vec<&str> = Vec::new();
    for error in errors {
        if !distinct.contains(&error.as_ref()) {
            distinct.push(error.as_ref());
        }
    }
    match distinct.as_slice() {
        [] => None,
        [only] => Some((*only).to_owned()),
        several => Some(format!("[{}]", several.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_listed_once() {
        assert_eq!(aggregate::<&str>(&[]), None);
        assert_eq!(aggregate(&["a", "a"]).as_deref(), Some("a"));
        assert_eq!(aggregate(&["a", "b", "a"]).as_deref(), Some("[a, b]"));
    }
}
