//! The variables of a run: the spec of an object, and more about it, as the Operator SDK names them.           (pure)
//!
//! ```text
//!  replica_count: 2                        the fields of the spec, in snake case
//!  ansible_operator_meta: {name, namespace}
//!  _example_com_cache: {…}                 the object
//!  _example_com_cache_spec: {…}            its spec, as it is
//!  …                                       the variables of watches.yaml
//! ```

use serde_json::{Map, Value, json};
use setpoint::Kind;

use super::AnsibleWatch;

/// Words that are upper-case as a whole.
const WORDS: [&str; 3] = ["HTTP", "URL", "IP"];

/// Returns the variables for an object.
pub(super) fn variables(
    watch: &AnsibleWatch,
    kind: &Kind,
    object: &Value,
    finalizing: bool,
) -> Map<String, Value> {
    let spec = object["spec"].as_object().cloned().unwrap_or_default();
    let mark = |value: Value| if watch.marks_unsafe { unsafe_texts(value) } else { value };
    let mut variables = Map::new();
    for (name, value) in spec.clone() {
        let (name, value) = match watch.snake_case {
            true => (snake(&name), snake_fields(value)),
            false => (name, value),
        };
        // Some of Ansible's own variables are programs that it runs.
        if !watch.marks_unsafe || !name.starts_with("ansible_") {
            variables.insert(name, mark(value));
        }
    }
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    variables.insert(
        "ansible_operator_meta".into(),
        json!({"name": text("name"), "namespace": text("namespace")}),
    );
    let name = format!("_{}_{}", kind.group(), kind.kind().to_lowercase()).replace(['.', '-'], "_");
    variables.insert(format!("{name}_spec"), mark(spec.into()));
    variables.insert(name, mark(object.clone()));
    variables.extend(watch.vars.clone());
    if let Some(finalizer) = watch.finalizer.as_ref().filter(|_| finalizing) {
        variables.extend(finalizer.vars.clone());
    }
    variables
}

fn snake_fields(value: Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| (snake(&name), snake_fields(value)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.into_iter().map(snake_fields).collect(),
        value => value,
    }
}

/// Marks texts as not to be evaluated as templates.
fn unsafe_texts(value: Value) -> Value {
    match value {
        Value::String(text) => json!({"__ansible_unsafe": text}),
        Value::Array(items) => items.into_iter().map(unsafe_texts).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, unsafe_texts(value))).collect::<Map<_, _>>().into()
        }
        value => value,
    }
}

/// Converts a name to snake case. A name that begins with a capital gets an underscore before it.
fn snake(name: &str) -> String {
    let spaced = with_numbers_apart(name);
    let trimmed = spaced.trim_matches(' ');
    let begins_with_capital = trimmed.starts_with(|letter: char| letter.is_ascii_uppercase());
    let words = words(&with_words_apart(trimmed));
    let is_known = WORDS.iter().any(|word| words[0] == word.to_lowercase());
    let prefix = if begins_with_capital && !is_known { "_" } else { "" };
    format!("{prefix}{}", words.join("_"))
}

/// Separates a number between letters from them if another number follows: `a1b2` is `a 1 b2`.
fn with_numbers_apart(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let digits_from = |at: usize| letters[at..].iter().take_while(|letter| letter.is_ascii_digit()).count();
    let (mut text, mut at) = (String::new(), 0);
    while at < letters.len() {
        let first = if letters[at].is_ascii_alphabetic() { digits_from(at + 1) } else { 0 };
        let middle = at + 1 + first;
        let is_letter = letters.get(middle).is_some_and(char::is_ascii_alphabetic);
        let second = if first > 0 && is_letter { digits_from(middle + 1) } else { 0 };
        if second == 0 {
            text.push(letters[at]);
            at += 1;
            continue;
        }
        let end = middle + 1 + second;
        let part = |from: usize, to: usize| letters[from..to].iter().collect::<String>();
        text.push_str(&format!("{} {} {}", letters[at], part(at + 1, middle), part(middle, end)));
        at = end;
    }
    text
}

/// Separates `IP`, `IPs` and the like from what is around them.
fn with_words_apart(name: &str) -> String {
    WORDS.iter().fold(name.to_owned(), |name, word| {
        let Some((before, after)) = name.split_once(word) else { return name };
        let (plural, rest) = match after.strip_prefix('s') {
            Some(rest) => ("S", rest),
            None => ("", after),
        };
        // At the end of a name there is always a separator before the word, even if nothing else is.
        let left = if before.is_empty() && !rest.is_empty() { "" } else { "_" };
        let right = if rest.is_empty() { "" } else { "_" };
        format!("{before}{left}{word}{plural}{right}{rest}")
    })
}

/// Splits a name at separators and where the case changes.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let (mut words, mut word) = (Vec::new(), String::new());
    for (nth, letter) in letters.iter().enumerate() {
        let next = letters.get(nth + 1).copied().unwrap_or(*letter);
        if matches!(letter, ' ' | '_' | '-') {
            words.push(std::mem::take(&mut word));
        } else if !word.is_empty() && letter.is_ascii_uppercase() && next.is_ascii_lowercase() {
            words.push(std::mem::replace(&mut word, letter.to_string()));
        } else if !word.is_empty() && letter.is_ascii_lowercase() && next.is_ascii_uppercase() {
            words.push(std::mem::take(&mut word) + &letter.to_string());
        } else {
            word.push(*letter);
        }
    }
    words.push(word);
    words.iter().map(|word| word.to_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{Finalizer, Play};
    use super::*;

    #[test]
    fn names_become_snake_case_as_the_operator_sdk_writes_them() {
        let check = |name: &str, expected: &str| assert_eq!(snake(name), expected, "{name}");
        check("var", "var");
        check("888", "888");
        check("", "");
        check("k8s_var", "k8s_var");
        check("_k8s_var", "_k8s_var");
        check("k8s var", "k8s_var");
        check("size_k8s_test", "size_k8s_test");
        check("ThisShouldHaveUnderscores", "_this_should_have_underscores");
        check("sizeK8sBuckets", "size_k8s_buckets");
        check("_CanYou_Handle_mixedVars", "_can_you_handle_mixed_vars");
        check("egressIPs", "egress_ips");
        check("egressIPsEgress", "egress_ips_egress");
        check("egressIPsegress", "egress_ips_egress");
        check("IPsegress", "_ips_egress");
        check("egressIP", "egress_ip");
        check("egressIPEgress", "egress_ip_egress");
        check("egressIPegress", "egress_ip_egress");
        check("URLegressIPEgressHTTP", "url_egress_ip_egress_http");
        check("URLsegressIPsEgressHTTPs", "_urls_egress_ips_egress_https");
    }

    fn watch() -> AnsibleWatch {
        AnsibleWatch {
            play: Play::Role("/role".into()),
            vars: Map::new(),
            finalizer: None,
            manages_status: true,
            watches_dependents: true,
            watches_cluster_scoped: false,
            watches_annotations: false,
            snake_case: true,
            marks_unsafe: false,
            unwatched: Vec::new(),
        }
    }

    fn of(watch: &AnsibleWatch, finalizing: bool) -> Value {
        let kind = Kind::new("cert-manager.example.com", "v1", "Cache", "caches", true);
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": {"theSize": 2, "aList": [{"anItem": "{{ x }}"}]}});
        variables(watch, &kind, &object, finalizing).into()
    }

    #[test]
    fn the_spec_becomes_variables() {
        let found = of(&watch(), false);
        assert_eq!((&found["the_size"], &found["a_list"]), (&json!(2), &json!([{"an_item": "{{ x }}"}])));
        assert_eq!(found["ansible_operator_meta"], json!({"name": "a", "namespace": "n"}));
        assert_eq!(found["_cert_manager_example_com_cache_spec"]["theSize"], 2);
        assert_eq!(found["_cert_manager_example_com_cache"]["metadata"]["name"], "a");
        let found = of(&AnsibleWatch { snake_case: false, marks_unsafe: true, ..watch() }, false);
        assert_eq!(found["aList"], json!([{"anItem": {"__ansible_unsafe": "{{ x }}"}}]));
    }

    #[test]
    fn an_object_that_is_not_trusted_does_not_set_variables_of_ansible() {
        let kind = Kind::new("example.com", "v1", "Cache", "caches", true);
        let object = json!({"spec": {"ansiblePythonInterpreter": "/bin/evil", "size": 1}});
        let found = |marks_unsafe: bool| {
            Value::from(variables(&AnsibleWatch { marks_unsafe, ..watch() }, &kind, &object, false))
        };
        assert_eq!(found(true).get("ansible_python_interpreter"), None);
        assert_eq!(
            (&found(true)["size"], &found(false)["ansible_python_interpreter"]),
            (&json!(1), &json!("/bin/evil"))
        );
    }

    #[test]
    fn variables_of_the_watch_come_last() {
        let vars = |size: u64| json!({"the_size": size}).as_object().expect("an object").clone();
        let finalizer = Some(Finalizer { name: "a/b".into(), play: None, vars: vars(9) });
        let watch = AnsibleWatch { vars: vars(5), finalizer, ..watch() };
        assert_eq!((&of(&watch, false)["the_size"], &of(&watch, true)["the_size"]), (&json!(5), &json!(9)));
    }
}
