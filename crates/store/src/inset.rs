//! The part of a value that many records share: `metadata.managedFields`.
//!
//! Pods of one template have the same managers for the same fields, which are a third of their stored size. So a record
//! stores managed fields separately from its value, as a list of shared texts with a few own bytes in each (the time).
//! They are inserted when the value is written out.
//!
//! Invariants:
//! - Equal texts are one text ([`Text::shared`]), so comparing two insets compares pointers.
//! - A text lives as long as any record uses it.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

const OPEN: &[u8] = b"\"managedFields\":[";
const CLOSE: &[u8] = b"]";
/// The separator before or after the member.
const COMMA: u8 = b',';

/// A JSON member that is stored separately from its value: a list of shared texts. Cheap to clone.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Inset(Option<Arc<[Part]>>);

/// An item of the list.
#[derive(Clone)]
pub struct Part {
    pub text: Arc<Text>,
    pub own: InlineBytes,
}

/// The few bytes of an item that differ between records. Stored inline, because a time has only 20 of them.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct InlineBytes {
    length: u8,
    bytes: [u8; InlineBytes::MAX_LENGTH],
}

/// The text of an item, without the record's own bytes.
pub struct Text {
    bytes: Arc<[u8]>,
    own_at: usize,
    /// A value derived from the text: computed once, shared.
    reading: OnceLock<Arc<dyn Any + Send + Sync>>,
}

impl InlineBytes {
    pub const MAX_LENGTH: usize = 23;

    /// Returns `None` if the text is too long.
    pub fn new(text: &str) -> Option<Self> {
        let mut own = Self { length: u8::try_from(text.len()).ok()?, ..Self::default() };
        own.bytes.get_mut(..text.len())?.copy_from_slice(text.as_bytes());
        Some(own)
    }

    pub fn as_str(&self) -> &str {
        std::str::from_utf8(self.as_bytes()).unwrap_or_default()
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }
}

/// All texts, by the position of the own bytes, then by content. A text removes itself when it is dropped.
static TEXTS: Mutex<Texts> = Mutex::new(Texts(BTreeMap::new()));

struct Texts(BTreeMap<usize, BTreeMap<Arc<[u8]>, Weak<Text>>>);

impl Texts {
    fn find(&self, bytes: &[u8], own_at: usize) -> Option<Arc<Text>> {
        self.0.get(&own_at)?.get(bytes)?.upgrade()
    }

    fn add(&mut self, text: &Arc<Text>) {
        let same_place = self.0.entry(text.own_at).or_default();
        same_place.insert(text.bytes.clone(), Arc::downgrade(text));
    }

    /// Removes a dropped text, unless a new one has replaced it.
    fn forget(&mut self, bytes: &[u8], own_at: usize) {
        let Some(same_place) = self.0.get_mut(&own_at) else { return };
        if same_place.get(bytes).is_some_and(|text| text.strong_count() == 0) {
            same_place.remove(bytes);
        }
        if same_place.is_empty() {
            self.0.remove(&own_at);
        }
    }
}

impl Drop for Text {
    fn drop(&mut self) {
        // No code drops a text while holding the lock.
        TEXTS.lock().forget(&self.bytes, self.own_at);
    }
}

impl Text {
    /// Texts longer than this are rarely shared: objects with that many fields are unique.
    pub const LONG: usize = 16 << 10;

    /// Returns the shared text with these bytes and the own bytes at `own_at`. `None` if that is out of range.
    pub fn shared(bytes: &[u8], own_at: usize) -> Option<Arc<Self>> {
        if own_at > bytes.len() {
            return None;
        }
        let mut texts = TEXTS.lock();
        if let Some(known) = texts.find(bytes, own_at) {
            return Some(known);
        }
        let text = Arc::new(Self { bytes: bytes.into(), own_at, reading: OnceLock::new() });
        texts.add(&text);
        Some(text)
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub fn own_at(&self) -> usize {
        self.own_at
    }

    /// Returns a value derived from the text, computed on first use.
    pub fn reading<T: Any + Send + Sync>(&self, read: impl FnOnce(&Self) -> T) -> Option<&T> {
        self.reading.get_or_init(|| Arc::new(read(self))).downcast_ref()
    }
}

impl Part {
    fn length(&self) -> usize {
        self.text.bytes.len() + self.own.as_bytes().len()
    }

    /// Appends the whole item.
    pub fn write(&self, into: &mut Vec<u8>) {
        let (before, after) = self.text.bytes.split_at(self.text.own_at);
        into.extend_from_slice(before);
        into.extend_from_slice(self.own.as_bytes());
        into.extend_from_slice(after);
    }
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.text, &other.text) && self.own == other.own
    }
}

impl Eq for Part {}

impl Inset {
    pub fn new(parts: impl IntoIterator<Item = Part>) -> Self {
        let parts: Arc<[Part]> = parts.into_iter().collect();
        Self(Some(parts).filter(|parts| !parts.is_empty()))
    }

    pub fn parts(&self) -> &[Part] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns whether both have the same texts, ignoring own bytes.
    pub fn has_texts_of(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.parts(), other.parts());
        let same = |(a, b): (&Part, &Part)| Arc::ptr_eq(&a.text, &b.text);
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(same)
    }

    /// Returns the length of what [`write`](Self::write) appends.
    pub fn length(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        let items: usize = self.parts().iter().map(Part::length).sum();
        OPEN.len() + items + (self.parts().len() - 1) + CLOSE.len() + 1
    }

    /// Appends the member, followed by a comma for the next one.
    pub fn write(&self, into: &mut Vec<u8>) {
        if !self.is_empty() {
            self.write_member(into);
            into.push(COMMA);
        }
    }

    /// Appends the member after another one. The length is the same as with [`write`](Self::write).
    pub fn write_after(&self, into: &mut Vec<u8>) {
        if !self.is_empty() {
            into.push(COMMA);
            self.write_member(into);
        }
    }

    fn write_member(&self, into: &mut Vec<u8>) {
        into.extend_from_slice(OPEN);
        for (at, part) in self.parts().iter().enumerate() {
            if at > 0 {
                into.push(b',');
            }
            part.write(into);
        }
        into.extend_from_slice(CLOSE);
    }

    /// Returns its memory per record, without shared texts.
    pub(crate) fn weight(&self) -> usize {
        let long = |part: &Part| Some(part.text.bytes.len()).filter(|length| *length > Text::LONG);
        size_of_val(self.parts()) + self.parts().iter().filter_map(long).sum::<usize>()
    }
}

impl fmt::Debug for Inset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Inset({} parts)", self.parts().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str, own: &str) -> Part {
        let own_at = text.find('|').unwrap_or(text.len());
        let text = Text::shared(text.replace('|', "").as_bytes(), own_at).expect("the place is inside");
        Part { text, own: InlineBytes::new(own).expect("it is short") }
    }

    #[test]
    fn equal_texts_are_one() {
        let (a, b) = (part("{\"x\":\"|\"}", "1"), part("{\"x\":\"|\"}", "2"));
        assert!(Arc::ptr_eq(&a.text, &b.text));
        assert!(a != b && a == part("{\"x\":\"|\"}", "1"));
        assert!(!Arc::ptr_eq(&a.text, &part("{\"x\":\"\"|}", "1").text), "its own position wins");
        assert!(Inset::new([a]).has_texts_of(&Inset::new([b])));
    }

    #[test]
    fn an_inset_is_written_as_a_member() {
        let inset = Inset::new([part("{\"x\":\"|\"}", "1"), part("{}", "")]);
        let mut written = Vec::new();
        inset.write(&mut written);
        assert_eq!(written, br#""managedFields":[{"x":"1"},{}],"#);
        assert_eq!(written.len(), inset.length());
        let mut after = Vec::new();
        inset.write_after(&mut after);
        assert_eq!(after, br#","managedFields":[{"x":"1"},{}]"#);
        assert_eq!(Inset::new([]), Inset::default());
    }

    #[test]
    fn long_texts_are_not_stored_inline() {
        assert_eq!(InlineBytes::new(&"x".repeat(23)).map(|own| own.as_str().len()), Some(23));
        assert!(InlineBytes::new(&"x".repeat(24)).is_none());
        assert!(Text::shared(b"ab", 3).is_none());
    }

    #[test]
    fn texts_that_no_record_has_are_forgotten() {
        const PLACE: usize = 9;
        let (text, own_at) = (b"{\"only\":\"here\"}", PLACE);
        let kept = Text::shared(text, own_at);
        for n in 0..1000 {
            Text::shared(format!("{{\"only\":\"{n:04}\"}}").as_bytes(), own_at);
        }
        assert_eq!(TEXTS.lock().0[&PLACE].len(), 1);
        drop(kept);
        assert!(!TEXTS.lock().0.contains_key(&PLACE));
    }
}
