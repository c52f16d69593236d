//! Limits counted repetitions. Go rejects more than 1000, with nested counts multiplied, because a program contains a
//! copy of the repeated part for each repetition.

/// The maximum number of counted repetitions.
const MOST: u32 = 1000;

/// Tracks a pattern from left to right.
#[derive(Default)]
pub(super) struct Repeats {
    /// The repetitions within the last item, and likewise the maximum in each open group.
    last: u32,
    largest: u32,
    open: Vec<u32>,
}

impl Repeats {
    /// Processes a character outside of classes that does not start a count.
    pub(super) fn see(&mut self, letter: char) {
        match letter {
            '(' => {
                self.open.push(self.largest);
                (self.last, self.largest) = (1, 1);
            }
            ')' => {
                self.last = self.largest;
                self.largest = self.largest.max(self.open.pop().unwrap_or(1));
            }
            '*' | '+' | '?' => {}
            _ => self.last = 1,
        }
    }

    /// Processes a count such as `{2,5}` at the start of `text` and returns its length, or `None` if there is none.
    pub(super) fn count(&mut self, text: &str) -> Result<Option<usize>, String> {
        let Some(end) = text.find('}') else { return Ok(None) };
        let (least, most) = text[1..end].split_once(',').map_or((&text[1..end], None), |(a, b)| (a, Some(b)));
        let (Some(least), Some(most)) = (number(least), most.map_or(Some(Bound::None), bound)) else {
            return Ok(None);
        };
        let refused = || format!("invalid repeat count: `{}`", &text[..=end]);
        let largest = match most {
            Bound::At(most) if most < least => return Err(refused()),
            Bound::At(most) => most,
            Bound::None => least,
        };
        // Clamped just above the limit at each step, so that nothing overflows.
        let times = largest.max(least).clamp(1, MOST + 1) * self.last.max(1);
        if times > MOST {
            return Err(refused());
        }
        self.last = times;
        self.largest = self.largest.max(times);
        Ok(Some(end + 1))
    }
}

enum Bound {
    None,
    At(u32),
}

/// Parses the upper bound after the comma.
fn bound(text: &str) -> Option<Bound> {
    if text.is_empty() { Some(Bound::None) } else { number(text).map(Bound::At) }
}

/// Parses a number as Go does in a count: digits without leading zeros. Very large numbers saturate.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    (is_number && !has_zeros).then(|| text.parse().unwrap_or(u32::MAX))
}
