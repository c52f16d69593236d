//! Absolute or percentage amounts of pods. Pure.

use serde::Deserialize;

/// A number of pods, or a percentage of the desired ones (`"25%"`).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(crate) enum Amount {
    Number(i32),
    Share(String),
}

#[derive(Clone, Copy)]
pub(crate) enum Rounded {
    Up,
    Down,
}

impl Amount {
    /// Resolves the amount. Malformed amounts are zero.
    pub(crate) fn of(&self, whole: i32, rounded: Rounded) -> i32 {
        match self {
            Self::Number(number) => *number,
            Self::Share(share) => share_of(share, whole, rounded).unwrap_or(0),
        }
    }
}

fn share_of(share: &str, whole: i32, rounded: Rounded) -> Option<i32> {
    let percent: i64 = share.strip_suffix('%')?.parse().ok()?;
    let hundredths = i64::from(whole).checked_mul(percent)?;
    let number = match rounded {
        Rounded::Up => -(-hundredths).div_euclid(100),
        Rounded::Down => hundredths.div_euclid(100),
    };
    i32::try_from(number).ok()
}
