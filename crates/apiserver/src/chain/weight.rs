//! How much memory a body takes once it is decoded, and how much all bodies may take at once.
//!
//! Text that is small can be large in memory: an object of one field takes seven bytes to send and some 700 to hold. A
//! body is weighed before it is decoded, and waits while others that are decoded leave no room for it.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::schema::protobuf;
use crate::status::Status;

/// What bodies that are being handled may take together, decoded once. An object exists up to three times while it is
/// handled (as sent, as it will be stored, as it is checked), so this is some 200 MB. A body that takes more by itself
/// is rejected: at 700 bytes that is some 90,000 objects, and what is stored of one object (1.5 MiB) has rarely more
/// than 50,000.
const ROOM: usize = 64 << 20;
/// Shorter bodies are not weighed. With 600 requests at once they take 600 × 8 KiB × 100, 480 MB, in the worst case.
const FREE: usize = 8 << 10;
/// A JSON object in memory: a node of a tree with room for several fields, and a key.
const OBJECT: usize = 700;
/// Another item of a list or field of an object: 32 bytes in a list that doubles as it grows, 56 in a tree whose nodes
/// are half full.
const VALUE: usize = 100;
/// Each byte of a body: the body itself, and its strings once more while an object is made of them.
const BYTE: usize = 3;
/// The room is counted in these.
const UNIT: usize = 1 << 10;

/// The room for decoded bodies.
pub(crate) struct Room(Semaphore);

impl Default for Room {
    fn default() -> Self {
        Self(Semaphore::new(ROOM / UNIT))
    }
}

impl Room {
    /// Waits for room for a body; it is given back when the outcome is dropped.
    pub(super) async fn enter(&self, body: &[u8]) -> Result<Option<SemaphorePermit<'_>>, Status> {
        if body.len() <= FREE {
            return Ok(None);
        }
        let weight = weight(body);
        if weight > ROOM {
            return Err(Status::too_large(format_args!("decoded, it would take more than {ROOM} bytes")));
        }
        let permits = u32::try_from(weight.div_ceil(UNIT)).unwrap_or(u32::MAX);
        // It is never closed.
        Ok(self.0.acquire_many(permits).await.ok())
    }
}

/// An estimate of what a body takes once it is decoded.
fn weight(body: &[u8]) -> usize {
    let (objects, values) = match protobuf::is_marked(body) {
        true => (protobuf::likely_messages(body.len()), 0),
        false => counted(body),
    };
    // Bodies have 3 MiB at most, so this is far from overflowing.
    body.len() * BYTE + objects * OBJECT + values * VALUE
}

/// How many objects a JSON text has that are not empty, and how many values follow another one. Text that is no JSON is
/// counted too: whoever reads it has limits of its own.
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

/// Goes on after the end of a string whose quote has been read.
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
    fn what_a_text_holds_is_counted_outside_of_its_strings() {
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
        let room = Room::default();
        let bomb = |count: usize| format!("[{}]", vec![r#"{"":0}"#; count].join(","));
        assert!(room.enter(bomb(100).as_bytes()).await.unwrap().is_none(), "a short one is not weighed");
        assert_eq!(room.enter(bomb(300_000).as_bytes()).await.unwrap_err().code, 413);
        let first = room.enter(bomb(50_000).as_bytes()).await.unwrap();
        assert!(first.is_some());
        let text = format!(r#"{{"data":{{"a":"{}"}}}}"#, "{".repeat(1 << 20));
        room.enter(text.as_bytes()).await.unwrap();
        let second = bomb(50_000);
        let mut second = std::pin::pin!(room.enter(second.as_bytes()));
        let waiting = tokio::time::timeout(std::time::Duration::from_secs(1), second.as_mut());
        assert!(waiting.await.is_err(), "there is no room for both");
        drop(first);
        assert!(second.await.unwrap().is_some());
    }
}
