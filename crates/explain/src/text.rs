//! The text of explanations: bounded, without control characters, with durations and amounts in Kubernetes' format.

use jiff::Timestamp;

/// The maximum length of a message. Messages of conditions may have 32 KiB.
const MAX_TEXT: usize = 600;

/// Returns a message on one line, truncated, and without control characters, which a terminal would interpret.
pub fn clip(text: &str) -> String {
    let mut shown = String::new();
    for (nth, letter) in text.trim().chars().enumerate() {
        if nth == MAX_TEXT {
            shown.push('…');
            return shown;
        }
        shown.push(if is_shown(letter) { letter } else { ' ' });
    }
    shown
}

/// Control characters and those that change the direction of the text around them are not shown.
fn is_shown(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Returns a number of things: `1 pod`, `3 pods`.
pub fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ if thing.ends_with('s') => format!("{number} {thing}es"),
        _ => format!("{number} {thing}s"),
    }
}

/// Returns the first few names: `a, b and 3 more`.
pub fn names<T: AsRef<str>>(all: &[T], most: usize) -> String {
    let shown: Vec<String> = all.iter().take(most).map(|name| clip(name.as_ref())).collect();
    match all.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// Returns a duration in kubectl's format for ages.
pub fn duration(seconds: i64) -> String {
    match seconds.max(0) {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// Returns how long ago a time was.
pub fn since(then: Timestamp, now: Timestamp) -> String {
    duration(now.duration_since(then).as_secs())
}

/// Returns an amount of a resource: CPU in millicores, memory and storage in bytes.
pub fn amount(resource: &str, number: i64) -> String {
    match resource {
        "cpu" if number % 1000 == 0 => (number / 1000).to_string(),
        "cpu" => format!("{number}m"),
        "memory" | "ephemeral-storage" | "storage" => bytes(number),
        name if name.starts_with("hugepages-") => bytes(number),
        _ => number.to_string(),
    }
}

/// Returns bytes in the largest binary unit in which they are at least 1, with at most one decimal.
fn bytes(number: i64) -> String {
    const UNITS: [(&str, i64); 4] = [("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
    for (unit, size) in UNITS {
        if number.abs() >= size {
            return match number % size {
                0 => format!("{}{unit}", number / size),
                _ => format!("{:.1}{unit}", number as f64 / size as f64),
            };
        }
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_texts_are_cut_and_lose_control_characters() {
        assert_eq!(clip("a\u{1b}[31mb\nc\u{202e}d"), "a [31mb c d");
        assert_eq!(clip(&"x".repeat(10_000)).chars().count(), MAX_TEXT + 1);
    }

    #[test]
    fn amounts_are_written_as_in_manifests() {
        for (resource, number, expected) in [
            ("cpu", 300, "300m"),
            ("cpu", 2000, "2"),
            ("memory", 512 << 20, "512Mi"),
            ("memory", 1_610_612_736, "1.5Gi"),
            ("nvidia.com/gpu", 2, "2"),
        ] {
            assert_eq!(amount(resource, number), expected);
        }
    }

    #[test]
    fn lists_of_names_are_short() {
        assert_eq!(names(&["a", "b"], 3), "a, b");
        assert_eq!(names(&["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!((count(1, "pod"), count(2, "class")), ("1 pod".to_owned(), "2 classes".to_owned()));
    }
}
