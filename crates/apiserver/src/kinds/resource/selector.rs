//! The expressions that pick devices.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::cel::{Declared, Environment, Object, Type};
use crate::field::{Errors, Path};
use crate::json::Json;
use crate::validation::too_long;

const EXPRESSION_BYTES: usize = 10 << 10;

/// A selector: an expression over a device that says whether it is wanted.
pub(super) fn check(selector: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("cel");
    if !selector.has("cel") {
        return errors.required(&path, "");
    }
    let (text, path) = (selector.at("cel").text("expression"), path.child("expression"));
    if text.len() > EXPRESSION_BYTES {
        return too_long(EXPRESSION_BYTES, &path, errors);
    }
    if let Err(why) = compile(text) {
        errors.invalid(&path, text, why);
    }
}

fn compile(text: &str) -> Result<(), String> {
    let program = environment().compile(text).map_err(|why| format!("compilation failed: {why}"))?;
    match program.output() {
        Type::Bool | Type::Dyn => Ok(()),
        other => Err(format!("must evaluate to bool or the unknown type, not {other}")),
    }
}

/// Devices by their driver, and attributes and capacities by domain and name.
fn environment() -> Environment {
    let by_domain = |of: Type| Declared::plain(Type::map(Type::String, Type::map(Type::String, of)));
    let fields = BTreeMap::from([
        ("driver".to_owned(), Declared::plain(Type::String)),
        ("attributes".to_owned(), by_domain(Type::Dyn)),
        ("capacity".to_owned(), by_domain(Type::opaque("kubernetes.Quantity"))),
    ]);
    let device = Object { name: "kubernetes.DRADevice".into(), fields };
    Environment::new().with("device", Arc::new(Declared::plain(Type::Object(Arc::new(device)))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_says_yes_or_no_of_a_device() {
        for (text, fine) in [
            ("device.driver == 'd.io'", true),
            ("device.attributes['d.io'].model == 'a'", true),
            ("device.capacity['d.io'].memory.compareTo(quantity('1Gi')) >= 0", true),
            ("device.driver", false),
            ("device.nothing == 1", false),
            ("device.", false),
        ] {
            assert_eq!(compile(text).is_ok(), fine, "{text}: {:?}", compile(text));
        }
    }
}
