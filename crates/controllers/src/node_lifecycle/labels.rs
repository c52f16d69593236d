//! Labels that have an older name, under which some still look for them. Pure.

use setpoint::Labels;

/// The label, and its older name.
const OLDER: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// The older labels that a node lacks or has with another value.
pub(super) fn missing(labels: &Labels) -> Vec<(&'static str, String)> {
    let differs = |(name, older): &(&'static str, &'static str)| {
        let value = labels.get(name)?;
        (labels.get(older) != Some(value)).then(|| (*older, value.to_owned()))
    };
    OLDER.iter().filter_map(differs).collect()
}
