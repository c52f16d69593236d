//! How often a pattern repeats its parts by count. Go refuses more than 1000, those within one another
//! multiplied: a program has a copy of what is repeated for each time.

/// The most often that anything may be repeated by count.
const MOST: u32 = 1000;

/// Follows a pattern from left to right.
#[derive(Default)]
pub(super) struct Repeats {
    /// How often the last item repeats something within it, and so the largest of each open group.
    last: u32,
    largest: u32,
    open: Vec<u32>,
}

impl Repeats {
    /// Takes in a letter outside of classes that begins no count.
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

    /// Takes in a count such as `{2,5}` at the beginning of `text` and tells its length; `None` if it is none.
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
        // Beyond the limit at each step, so that nothing overflows.
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

/// The upper bound after the comma.
fn bound(text: &str) -> Option<Bound> {
    if text.is_empty() { Some(Bound::None) } else { number(text).map(Bound::At) }
}

/// A number as Go reads it in a count: digits, without zeros in front. What is very large stays large.
fn number(text: &str) -> Option<u32> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let has_zeros = text.len() > 1 && text.starts_with('0');
    (is_number && !has_zeros).then(|| text.parse().unwrap_or(u32::MAX))
}
