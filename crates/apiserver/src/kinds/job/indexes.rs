//! Lists of indexes, written as intervals: `1,3-5,7`.

type Interval = (i64, i64);

/// Counts the indexes in a list, which must be sorted and below `completions`.
pub(super) fn count(text: &str, completions: i64) -> Result<i64, String> {
    if text.is_empty() {
        return Ok(0);
    }
    let (mut last, mut total) = (None, 0);
    for interval in text.split(',') {
        let (low, high) = parse(interval, completions)?;
        if let Some(last) = last.filter(|last| *last >= low) {
            return Err(format!("non-increasing order, previous: {last}, current: {low}"));
        }
        total += high - low + 1;
        last = Some(high);
    }
    Ok(total)
}

/// Returns the first index that two lists share. Skips invalid entries, which are reported separately.
pub(super) fn first_shared(one: &str, other: &str, completions: i64) -> Option<i64> {
    let intervals = |text: &str| -> Vec<Interval> {
        text.split(',').filter_map(|interval| parse(interval, completions).ok()).collect()
    };
    let (one, other) = (intervals(one), intervals(other));
    let (mut at_one, mut at_other) = (one.iter().peekable(), other.iter().peekable());
    while let (Some((low, high)), Some((other_low, other_high))) = (at_one.peek(), at_other.peek()) {
        if low <= other_high && other_low <= high {
            return Some(*low.max(other_low));
        }
        if low <= other_low {
            at_one.next()
        } else {
            at_other.next()
        };
    }
    None
}

fn parse(interval: &str, completions: i64) -> Result<Interval, String> {
    let index = |text: &str| -> Result<i64, String> {
        // Parsed like in Go: with a sign, without spaces.
        let number: i64 =
            text.parse().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let parts: Vec<&str> = interval.split('-').collect();
    match parts[..] {
        [only] => index(only).map(|index| (index, index)),
        [low, high] => {
            let (low, high) = (index(low)?, index(high)?);
            match low < high {
                true => Ok((low, high)),
                false => Err(format!("non-increasing order, previous: {low}, current: {high}")),
            }
        }
        _ => Err(format!(
            "the fragment {interval:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_are_counted_where_they_are_well_formed() {
        for (text, expected) in [
            ("", Ok(0)),
            ("0", Ok(1)),
            ("1,3-5,7", Ok(5)),
            ("10", Err("too large index: \"10\"")),
            ("1-x", Err("cannot convert string to integer for index: \"x\"")),
            ("3-1", Err("non-increasing order, previous: 3, current: 1")),
            ("3,2", Err("non-increasing order, previous: 3, current: 2")),
        ] {
            assert_eq!(count(text, 10), expected.map_err(str::to_owned), "{text}");
        }
        assert!(count("1-2-3", 10).is_err());
    }

    #[test]
    fn lists_that_overlap_share_an_index() {
        assert_eq!(first_shared("0-2,5", "3-4,6", 10), None);
        assert_eq!(first_shared("0-2,5-8", "3-4,6", 10), Some(6));
        assert_eq!(first_shared("x,5", "5", 10), Some(5));
        assert_eq!(first_shared("", "5", 10), None);
    }
}
