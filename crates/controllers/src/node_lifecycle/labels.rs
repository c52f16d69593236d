//! Deprecated labels that some clients still use. Pure.

use setpoint::Labels;

/// A label and its deprecated name.
const OLDER: [(&str, &str); 2] =
    [("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch")];

/// Returns the deprecated labels that a node lacks or has with a different value.
pub(super) fn missing(labels: &Labels) -> Vec<(&'static str, String)> {
    let differs = |(name, older): &(&'static str, &'static str)| {
        let value = labels.get(name)?;
        (labels.get(older) != Some(value)).then(|| (*older, value.to_owned()))
    };
    OLDER.iter().filter_map(differs).collect()
}
