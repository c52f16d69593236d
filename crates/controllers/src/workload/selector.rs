//! Formats selectors for events. Pure.

use std::fmt::Write;

use setpoint::LabelSelector;

/// Formats a selector for events.
pub(crate) fn format_selector(selector: &LabelSelector) -> String {
    let mut text = "&LabelSelector{MatchLabels:map[string]string{".to_owned();
    for (key, value) in selector.match_labels.iter() {
        let _ = write!(text, "{key}: {value},");
    }
    text.push_str("},MatchExpressions:[]LabelSelectorRequirement{");
    for requirement in &selector.match_expressions {
        let (key, operator) = (&requirement.key, requirement.operator);
        let values = requirement.values.join(" ");
        let _ =
            write!(text, "LabelSelectorRequirement{{Key:{key},Operator:{operator:?},Values:[{values}],}},");
    }
    text.push_str("},}");
    text
}
