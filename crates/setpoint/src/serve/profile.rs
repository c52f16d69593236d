//! Profiles in the format of `go tool pprof` and related tools.
//!
//! The format is a handful of protobuf messages (`perftools.profiles.Profile`). This implements the subset needed for
//! stacks with values.

use std::collections::BTreeMap;
use std::time::Duration;

/// A profile: stacks with a value each.
///
/// ```
/// use setpoint::serve::Profile;
/// let mut heap = Profile::new("inuse_space", "bytes");
/// heap.add(["cache of pods", "informers"], 4096);
/// assert!(!heap.encode().is_empty());
/// ```
#[derive(Clone, Debug)]
pub struct Profile {
    what: &'static str,
    unit: &'static str,
    period: i64,
    time_nanos: i64,
    duration: Duration,
    /// Values by stack, innermost frame first.
    samples: BTreeMap<Vec<String>, i64>,
}

impl Profile {
    /// Creates an empty profile of `what`, measured in `unit`.
    pub fn new(what: &'static str, unit: &'static str) -> Self {
        let samples = BTreeMap::new();
        Self { what, unit, period: 1, time_nanos: 0, duration: Duration::ZERO, samples }
    }

    /// Sets when the samples were taken, over which duration, and the value of one sample.
    pub fn taken(self, at: jiff::Timestamp, over: Duration, period: i64) -> Self {
        let time_nanos = i64::try_from(at.as_nanosecond()).unwrap_or(i64::MAX);
        Self { time_nanos, duration: over, period, ..self }
    }

    /// Adds a value to a stack, innermost frame first.
    pub fn add<S: Into<String>>(&mut self, stack: impl IntoIterator<Item = S>, value: i64) {
        *self.samples.entry(stack.into_iter().map(Into::into).collect()).or_default() += value;
    }

    /// Encodes the profile as protobuf.
    pub fn encode(&self) -> Vec<u8> {
        let mut names = Names::default();
        let mut out = Message::default();
        let value_type = |names: &mut Names| {
            Message::default().number(1, names.text(self.what)).number(2, names.text(self.unit))
        };
        out = out.message(1, value_type(&mut names));
        for (stack, value) in &self.samples {
            let frames: Vec<u64> = stack.iter().map(|frame| names.function(frame)).collect();
            out = out.message(2, Message::default().packed(1, &frames).packed(2, &[*value as u64]));
        }
        for (id, name) in names.functions.iter().enumerate().map(|(at, name)| (at as u64 + 1, *name)) {
            let line = Message::default().number(1, id);
            out = out.message(4, Message::default().number(1, id).message(4, line));
            out = out.message(5, Message::default().number(1, id).number(2, name).number(3, name));
        }
        let period_type = value_type(&mut names);
        for text in &names.texts {
            out = out.bytes(6, text.as_bytes());
        }
        out.number(9, self.time_nanos as u64)
            .number(10, u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX))
            .message(11, period_type)
            .number(12, self.period as u64)
            .0
    }
}

/// The string and function tables of a profile.
struct Names {
    texts: Vec<String>,
    by_text: BTreeMap<String, u64>,
    /// The string index of each function's name. A function's ID is its position, starting at 1.
    functions: Vec<u64>,
    by_function: BTreeMap<u64, u64>,
}

impl Default for Names {
    /// The format requires that the first string is empty.
    fn default() -> Self {
        let texts = vec![String::new()];
        Self { texts, by_text: BTreeMap::new(), functions: Vec::new(), by_function: BTreeMap::new() }
    }
}

impl Names {
    fn text(&mut self, text: &str) -> u64 {
        if let Some(known) = self.by_text.get(text) {
            return *known;
        }
        let next = self.texts.len() as u64;
        self.texts.push(text.into());
        self.by_text.insert(text.into(), next);
        next
    }

    fn function(&mut self, name: &str) -> u64 {
        let name = self.text(name);
        let functions = &mut self.functions;
        *self.by_function.entry(name).or_insert_with(|| {
            functions.push(name);
            functions.len() as u64
        })
    }
}

/// A protobuf message under construction.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(mut self, field: u64, number: u64) -> Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn bytes(mut self, field: u64, bytes: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn packed(self, field: u64, numbers: &[u64]) -> Self {
        let mut inner = Self::default();
        numbers.iter().for_each(|number| inner.varint(*number));
        self.bytes(field, &inner.0)
    }

    fn message(self, field: u64, message: Self) -> Self {
        self.bytes(field, &message.0)
    }
}
