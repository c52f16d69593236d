//! Estimates the memory of decoded bodies, and limits their total.
//!
//! A small text can take a lot of memory: an object with one field takes seven bytes to send and about 700 to hold. A
//! body is weighed before it is decoded, and waits while other decoded bodies leave no room for it.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::schema::protobuf;
use crate::status::Status;

/// Maximum total weight of the bodies being handled, each decoded once. An object exists up to three times while it is
/// handled (as sent, as it will be stored, as it is checked), so this is about 200 MB. A single body above the limit
/// is rejected: at 700 bytes each, that is about 90,000 JSON objects, and a stored object (1.5 MiB) rarely has more
/// than 50,000.
const BUDGET: usize = 64 << 20;
/// Shorter bodies are not weighed. With 600 concurrent requests they take 600 × 8 KiB × 100, 480 MB, in the worst
/// case.
const FREE: usize = 8 << 10;
/// Memory of a JSON object: a tree node with room for several fields, and a key.
const OBJECT: usize = 700;
/// Memory of each further list item or object field: 32 bytes in a list that doubles as it grows, 56 in a tree whose
/// nodes are half full.
const VALUE: usize = 100;
/// Memory per byte of a body: the body itself, and its strings once more while they become an object.
const BYTE: usize = 3;
/// The semaphore counts in units of this size.
const UNIT: usize = 1 << 10;

/// The memory available for decoded bodies.
pub(crate) struct DecodeBudget(Semaphore);

impl Default for DecodeBudget {
    fn default() -> Self {
        Self(Semaphore::new(BUDGET / UNIT))
    }
}

impl DecodeBudget {
    /// Waits until there is room for a body; dropping the permit releases it.
    pub(crate) async fn enter(&self, body: &[u8]) -> Result<Option<SemaphorePermit<'_>>, Status> {
        if body.len() <= FREE {
            return Ok(None);
        }
        let weight = weight(body);
        if weight > BUDGET {
            return Err(Status::too_large(format_args!("decoded, it would take more than {BUDGET} bytes")));
        }
        let permits = u32::try_from(weight.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        Ok(self.0.acquire_many(permits).await.ok())
    }
}

/// Estimates the memory of a decoded body.
fn weight(body: &[u8]) -> usize {
    let (objects, values) = match protobuf::is_marked(body) {
        true => (protobuf::likely_messages(body.len()), 0),
        false => counted(body),
    };
    // Bodies are at most 16 MiB, so this cannot overflow.
    body.len() * BYTE + objects * OBJECT + values * VALUE
}

/// Counts the non-empty objects in a JSON text, and the values that follow another one. Counts other text too: its
/// decoder has limits of its own.
fn counted(text: &[u8]) -> (usize, usize) {
    let (mut objects, mut values) = (0, 0);
    let mut bytes = text.iter().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => skip_string(&mut bytes),
            b'{' if text.get(at + 1) != Some(&b'}') => objects += 1,
            b',' => values += 1,
            _ => {}
        }
    }
    (objects, values)
}

/// Skips to the end of a string whose opening quote has been read.
fn skip_string<'t>(bytes: &mut impl Iterator<Item = (usize, &'t u8)>) {
    while let Some((_, byte)) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_ignored_when_counting_elements() {
        let check = |text: &str, expected| assert_eq!(counted(text.as_bytes()), expected, "{text}");
        check("", (0, 0));
        check("{}", (0, 0));
        check(r#"{"a":1}"#, (1, 0));
        check(r#"{"a":[1,2,{"b":{}}],"c":{"d":0}}"#, (3, 3));
        check(r#"{"a":"{,{,\"{,{,"}"#, (1, 0));
        check(r#"{"a":"\\","b":{"c":0}}"#, (2, 1));
        check(r#"["unclosed {"#, (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_that_grow_when_they_are_decoded_wait_for_each_other() {
        let room = DecodeBudget::default();
        let bomb = |count: usize| format!("[{}]", vec![r#"{"":0}"#; count].join(","));
        assert!(room.enter(bomb(100).as_bytes()).await.unwrap().is_none(), "short bodies are not weighed");
        assert_eq!(room.enter(bomb(300_000).as_bytes()).await.unwrap_err().code, 413);
        let first = room.enter(bomb(50_000).as_bytes()).await.unwrap();
        assert!(first.is_some());
        let text = format!(r#"{{"data":{{"a":"{}"}}}}"#, "{".repeat(1 << 20));
        room.enter(text.as_bytes()).await.unwrap();
        let second = bomb(50_000);
        let mut second = std::pin::pin!(room.enter(second.as_bytes()));
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), second.as_mut());
        assert!(waiting.await.is_err(), "the budget does not cover both");
        drop(first);
        assert!(second.await.unwrap().is_some());
    }
}
