//! Expressions that select devices for dynamic resource allocation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use setpoint_quantity::Quantity;

use crate::libraries::semver::Semver;
use crate::{CALL_LIMIT, Declared, Environment, Key, Object, Program, Type, Val};

/// An expression that decides whether a device matches.
#[derive(Debug)]
pub struct Selector(Program);

/// A device as expressions see it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Device(Val);

impl Selector {
    /// Compiles an expression. Errors have v1.34's messages.
    pub fn compile(text: &str) -> Result<Self, String> {
        let program = environment().compile(text).map_err(|why| format!("compilation failed: {why}"))?;
        match program.output() {
            Type::Bool | Type::Dyn => Ok(Self(program)),
            other => Err(format!("must evaluate to bool or the unknown type, not {other}")),
        }
    }

    /// Returns whether a device matches, or the error.
    pub fn wants(&self, device: &Device) -> Result<bool, String> {
        let variables = BTreeMap::from([("device", device.0.clone())]);
        match self.0.evaluate(&variables, CALL_LIMIT).0 {
            Ok(Val::Bool(wanted)) => Ok(wanted),
            Ok(other) => {
                Err(format!("CEL result of type {} could not be converted to bool", other.type_name()))
            }
            Err(why) => Err(why.to_string()),
        }
    }
}

impl Device {
    /// Creates a device of a driver from its attributes and capacities in API form.
    pub fn new(
        driver: &str,
        attributes: &BTreeMap<String, Value>,
        capacity: &BTreeMap<String, Value>,
    ) -> Result<Self, String> {
        let attributes = by_domain(driver, attributes, attribute)?;
        let capacity = by_domain(driver, capacity, |name, capacity| {
            let quantity =
                Quantity::of(&capacity["value"]).map_err(|why| format!("capacity {name}: {why}"))?;
            Ok(Val::Quantity(Box::new(quantity)))
        })?;
        let field = |name: &str, value| (Key::String(name.into()), value);
        let fields = [
            field("driver", Val::text(driver)),
            field("attributes", attributes),
            field("capacity", capacity),
        ];
        Ok(Self(Val::map(fields)))
    }
}

/// Groups attributes or capacities by domain and name. Names without a domain belong to the driver's.
fn by_domain(
    driver: &str,
    all: &BTreeMap<String, Value>,
    read: impl Fn(&str, &Value) -> Result<Val, String>,
) -> Result<Val, String> {
    let mut domains: BTreeMap<Key, BTreeMap<Key, Val>> = BTreeMap::new();
    for (name, value) in all {
        let (domain, id) = name.split_once('/').unwrap_or((driver, name));
        let of_domain = domains.entry(Key::String(domain.into())).or_default();
        of_domain.insert(Key::String(id.into()), read(name, value)?);
    }
    let domains = domains.into_iter().map(|(domain, of)| (domain, Val::Map(Arc::new(of))));
    Ok(Val::Domains(Arc::new(domains.collect())))
}

fn attribute(name: &str, value: &Value) -> Result<Val, String> {
    let of = |kind: &str| value.get(kind).filter(|value| !value.is_null());
    if let Some(number) = of("int").and_then(Value::as_i64) {
        return Ok(Val::Int(number));
    }
    if let Some(on) = of("bool").and_then(Value::as_bool) {
        return Ok(Val::Bool(on));
    }
    if let Some(text) = of("string").and_then(Value::as_str) {
        return Ok(Val::text(text));
    }
    let Some(version) = of("version").and_then(Value::as_str) else {
        return Err(format!("attribute {name}: unsupported attribute value"));
    };
    let version = Semver::parse(version, false);
    let version = version.ok_or_else(|| format!("attribute {name}: parse semantic version: {value}"))?;
    Ok(Val::Semver(Arc::new(version)))
}

/// Declares `device`, with its driver, and its attributes and capacities by domain and name.
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
    use serde_json::json;

    use super::*;

    fn device() -> Device {
        let attributes = json!({"model": {"string": "a"}, "cores": {"int": 4}, "ecc": {"bool": true},
                                "other.io/firmware": {"version": "1.2.3"}});
        let capacity = json!({"memory": {"value": "80Gi"}});
        let fields = |value: Value| serde_json::from_value(value).expect("an object");
        Device::new("d.io", &fields(attributes), &fields(capacity)).expect("a device")
    }

    #[test]
    fn a_selector_matches_a_device_or_not() {
        for (text, fine) in [
            ("device.driver == 'd.io'", true),
            ("device.attributes['d.io'].model == 'a'", true),
            ("device.capacity['d.io'].memory.compareTo(quantity('1Gi')) >= 0", true),
            ("device.driver", false),
            ("device.nothing == 1", false),
            ("device.", false),
        ] {
            assert_eq!(Selector::compile(text).is_ok(), fine, "{text}: {:?}", Selector::compile(text));
        }
    }

    #[test]
    fn attributes_and_capacities_are_read_by_domain() {
        let check = |text: &str, expected: Result<bool, &str>| {
            let wanted = Selector::compile(text).expect("an expression").wants(&device());
            assert_eq!(wanted, expected.map_err(str::to_owned), "{text}");
        };
        check("device.driver == 'd.io'", Ok(true));
        check("device.attributes['d.io'].model == 'b'", Ok(false));
        check("device.attributes['d.io'].cores > 3 && device.attributes['d.io'].ecc", Ok(true));
        check("device.attributes['other.io'].firmware.isGreaterThan(semver('1.0.0'))", Ok(true));
        check("device.capacity['d.io'].memory.compareTo(quantity('81Gi')) >= 0", Ok(false));
        check("'model' in device.attributes['nobody.io']", Ok(false));
        check("'nobody.io' in device.attributes", Ok(false));
        check("device.attributes['nobody.io'].model == 'a'", Err("no such key: model"));
        check(
            "device.attributes['d.io'].model",
            Err("CEL result of type string could not be converted to bool"),
        );
    }
}
