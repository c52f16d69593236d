//! The protobuf wire format: numbered fields of four wire types. Never reads out of bounds.

use std::fmt;

/// A field's raw value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32(u32),
    Bytes(&'a [u8]),
}

/// Why bytes are not a valid message, with the field being read, if any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    why: &'static str,
    field: Option<String>,
}

impl Malformed {
    pub(super) fn new(why: &'static str) -> Self {
        Self { why, field: None }
    }

    /// Keeps the innermost field, which is the useful one for the client.
    pub(super) fn at(self, field: &str) -> Self {
        Self { field: self.field.or_else(|| Some(field.to_owned())), ..self }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.field {
            Some(field) => write!(f, "proto: field {field:?}: {}", self.why),
            None => write!(f, "proto: {}", self.why),
        }
    }
}

/// The fields of a message in wire order.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Wire<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        (!self.0.is_empty()).then(|| self.field())
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Wire<'a>), Malformed> {
        let key = varint(&mut self.0)?;
        let wire = match key & 7 {
            0 => Wire::Varint(varint(&mut self.0)?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = usize::try_from(varint(&mut self.0)?).map_err(|_| truncated())?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.fixed()?)),
            _ => return Err(Malformed::new("a wire type that messages of this API do not have")),
        };
        Ok((key >> 3, wire))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or_else(truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| truncated())
    }
}

/// Takes a varint from the front of the bytes.
pub(super) fn varint(bytes: &mut &[u8]) -> Result<u64, Malformed> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first().ok_or_else(truncated)?;
        *bytes = rest;
        number |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Ok(number);
        }
    }
    Err(Malformed::new("a number of more than 64 bits"))
}

fn truncated() -> Malformed {
    Malformed::new("unexpected end of the message")
}
