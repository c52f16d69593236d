//! Feature gates: `--feature-gates Name=true,Other=false`.
//!
//! All gates of v1.34's kube-controller-manager are known by name, so that a command line that works there works
//! here. Few of them change what a controller does; whoever sets another one away from its default is told.

use std::collections::BTreeMap;

/// Name, default, and whether it is locked to it.
const TABLE: &str = include_str!("gates.txt");

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Gate {
    default: bool,
    locked: bool,
}

/// What was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gates {
    set: BTreeMap<String, bool>,
}

fn known() -> BTreeMap<&'static str, Gate> {
    let lines = TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'static str| {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let default = words.next() == Some("on");
        Some((name, Gate { default, locked: words.next() == Some("locked") }))
    };
    lines.filter_map(read).collect()
}

impl std::str::FromStr for Gates {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = known();
        let mut set = BTreeMap::new();
        for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("missing bool value for {pair}: expected {pair}=true"))?;
            let value: bool = match value {
                "true" | "True" | "1" => true,
                "false" | "False" | "0" => false,
                _ => return Err(format!("invalid value of {name}={value}: expected true or false")),
            };
            // These two stand for all gates of a stage.
            if !["AllAlpha", "AllBeta"].contains(&name) {
                let gate = known.get(name).ok_or_else(|| format!("unrecognized feature gate: {name}"))?;
                if gate.locked && gate.default != value {
                    let default = gate.default;
                    return Err(format!(
                        "cannot set feature gate {name} to {value}, feature is locked to {default}"
                    ));
                }
            }
            set.insert(name.to_owned(), value);
        }
        Ok(Self { set })
    }
}

impl Gates {
    /// What was set to something else than its default.
    pub(crate) fn unusual(&self) -> Vec<String> {
        let known = known();
        let differs = |(name, value): &(&String, &bool)| {
            known.get(name.as_str()).is_none_or(|gate| gate.default != **value)
        };
        self.set.iter().filter(differs).map(|(name, value)| format!("{name}={value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_are_known_by_name() {
        let check = |text: &str, expected: Result<&[&str], &str>| {
            let unusual = text.parse::<Gates>().map(|gates| gates.unusual());
            let expected = expected.map(|list| list.iter().map(|one| (*one).to_owned()).collect());
            assert_eq!(unusual, expected.map_err(str::to_owned), "{text}");
        };
        check("", Ok(&[]));
        check("DRADeviceTaints=true,", Ok(&["DRADeviceTaints=true"]));
        check("DRADeviceTaints=false", Ok(&[]));
        check("Nonsense=true", Err("unrecognized feature gate: Nonsense"));
        check(
            "DRADeviceTaints",
            Err("missing bool value for DRADeviceTaints: expected DRADeviceTaints=true"),
        );
        check("DRADeviceTaints=yes", Err("invalid value of DRADeviceTaints=yes: expected true or false"));
        let locked = "cannot set feature gate JobBackoffLimitPerIndex to false, feature is locked to true";
        check("JobBackoffLimitPerIndex=false", Err(locked));
    }
}
