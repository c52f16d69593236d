//! One field of a schedule: a set of numbers.

use crate::BadSchedule;

/// The range of a field, and names for some of its numbers.
pub(crate) struct Bounds {
    min: u32,
    max: u32,
    /// Starting with the lowest number.
    names: &'static [&'static str],
}

pub(crate) const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
pub(crate) const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
pub(crate) const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
pub(crate) const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
pub(crate) const DAYS_OF_WEEK: Bounds =
    Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    /// One bit per number; none is above 59.
    numbers: u64,
    any: bool,
}

impl Field {
    pub(crate) fn parse(text: &str, bounds: &Bounds) -> Result<Self, BadSchedule> {
        let mut field = Self { numbers: 0, any: false };
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let Self { numbers, any } = Self::parse_range(part, bounds)?;
            field = Self { numbers: field.numbers | numbers, any: field.any | any };
        }
        Ok(field)
    }

    fn parse_range(text: &str, bounds: &Bounds) -> Result<Self, BadSchedule> {
        let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
            [range] => (range, None),
            [range, step] => (range, Some(number(step)?)),
            _ => return Err(BadSchedule::Slashes(text.into())),
        };
        let ends: Vec<&str> = range.split('-').collect();
        let star = matches!(ends[0], "*" | "?");
        let (first, last) = match ends[..] {
            _ if star => (bounds.min, bounds.max),
            // A single number with a step is the start of a range.
            [first] if step.is_some() => (bounds.number(first)?, bounds.max),
            [first] => (bounds.number(first)?, bounds.number(first)?),
            [first, last] => (bounds.number(first)?, bounds.number(last)?),
            _ => return Err(BadSchedule::Hyphens(text.into())),
        };
        let step = step.unwrap_or(1);
        bounds.check(first, last, step, text)?;
        let numbers = (first..=last).step_by(step as usize).fold(0, |bits, number| bits | 1 << number);
        Ok(Self { numbers, any: star && step == 1 })
    }

    /// Whether the field contains a number. Calendar numbers are never negative.
    pub(crate) fn contains(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.numbers & (1 << number) != 0)
    }

    /// Whether it is a star.
    pub(crate) fn is_any(self) -> bool {
        self.any
    }
}

impl Bounds {
    fn number(&self, text: &str) -> Result<u32, BadSchedule> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Ok(self.min + at),
            None => number(text),
        }
    }

    fn check(&self, first: u32, last: u32, step: u32, text: &str) -> Result<(), BadSchedule> {
        let text = || text.to_owned();
        if first < self.min {
            return Err(BadSchedule::Below { first, min: self.min, text: text() });
        }
        if last > self.max {
            return Err(BadSchedule::Above { last, max: self.max, text: text() });
        }
        if first > last {
            return Err(BadSchedule::Backwards { first, last, text: text() });
        }
        if step == 0 {
            return Err(BadSchedule::Step(text()));
        }
        Ok(())
    }
}

fn number(text: &str) -> Result<u32, BadSchedule> {
    match text.parse::<i64>() {
        Ok(number) if number < 0 => {
            Err(BadSchedule::Negative { number: number.to_string(), text: text.into() })
        }
        Ok(number) => u32::try_from(number).map_err(|_| BadSchedule::Number(text.into())),
        Err(_) => Err(BadSchedule::Number(text.into())),
    }
}
